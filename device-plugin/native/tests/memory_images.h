/* Commands of memory_actor.c about images, memory of other interfaces and multicast objects. */
static CUmodule modules[THINGS];
static CUlibrary libraries[THINGS];
static CUexternalMemory externals[THINGS];

/* Binds new memory to an object that is there, and lets go of the memory. */
static int bind(size_t object, size_t bytes)
{
    const CUmemAllocationProp here = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle memory = 0;
    int result = cu.cuMemCreate(&memory, bytes, &here, 0);
    if (result)
        return result;
    result = cu.cuMulticastBindMem(handles[object], 0, memory, 0, bytes, 0);
    cu.cuMemRelease(memory);
    return result;
}

/* A new object, for others too. */
static int object(size_t thing, size_t bytes)
{
    const CUmulticastObjectProp team = {.numDevices = 1, .size = bytes,
                                        .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    int result = cu.cuMulticastCreate(&handles[thing], &team);
    return result ? result : (int)cu.cuMulticastAddDevice(handles[thing], 0);
}

/* Binds memory of that size to a new object and lets go of all but the object. */
static int multicast(size_t thing, size_t bytes)
{
    int result = object(thing, bytes);
    if (result)
        return result;
    result = bind(thing, bytes);
    if (result)
        cu.cuMemRelease(handles[thing]);
    return result;
}

static int launch(size_t thing, const char *name)
{
    CUfunction function;
    int result = cu.cuModuleGetFunction(&function, modules[thing], name);
    result = result ? result : (int)cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    return result ? result : (int)cu.cuStreamSynchronize(stream);
}

/* The driver takes the file for its own when it takes the memory. */
static int outside(size_t thing, size_t bytes, int dmabuf)
{
    enum { OPAQUE_FILE = 1, DMA_BUF_FILE = 9 };
    const int file = dmabuf ? fcntl(dmabuf, F_DUPFD_CLOEXEC, 0) : open("/dev/null", O_RDWR | O_CLOEXEC);
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC what = {.type = dmabuf ? DMA_BUF_FILE : OPAQUE_FILE, .handle.fd = file,
                                                   .size = bytes};
    int result = cu.cuImportExternalMemory(&externals[thing], &what);
    if (result)
        close(file);
    return result;
}

static int image(const char *what, size_t thing, size_t a, size_t b, const char *text)
{
#define IS(name) (strcmp(what, name) == 0)
    if (IS("module")) return cu.cuModuleLoad(&modules[thing], text);
    if (IS("module-unload")) return cu.cuModuleUnload(modules[thing]);
    if (IS("launch")) return launch(thing, text);
    if (IS("library")) return cu.cuLibraryLoadFromFile(&libraries[thing], text, NULL, NULL, 0, NULL, NULL, 0);
    if (IS("library-unload")) return cu.cuLibraryUnload(libraries[thing]);
    if (IS("external")) return outside(thing, a, (int)b);
    if (IS("external-destroy")) return cu.cuDestroyExternalMemory(externals[thing]);
    if (IS("object")) return object(thing, a);
    if (IS("join")) return cu.cuMulticastAddDevice(handles[thing], 0);
    if (IS("bind")) return bind(thing, a);
    if (IS("unbind")) return cu.cuMulticastUnbind(handles[thing], 0, 0, a);
    if (IS("multicast")) return multicast(thing, a);
    return -2;
#undef IS
}
