/* Commands of memory_actor.c about images, memory of other interfaces and multicast objects. */
static CUmodule modules[THINGS];
static CUlibrary libraries[THINGS];
static CUexternalMemory externals[THINGS];

/* Binds memory of that size to a new object and lets go of all but the object. */
static int multicast(size_t thing, size_t bytes)
{
    const CUmemAllocationProp here = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    const CUmulticastObjectProp team = {.numDevices = 1, .size = bytes};
    CUmemGenericAllocationHandle memory = 0;
    int result = cu.cuMemCreate(&memory, bytes, &here, 0);
    if (result)
        return result;
    result = cu.cuMulticastCreate(&handles[thing], &team);
    result = result ? result : (int)cu.cuMulticastAddDevice(handles[thing], 0);
    result = result ? result : (int)cu.cuMulticastBindMem(handles[thing], 0, memory, 0, bytes, 0);
    cu.cuMemRelease(memory);
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
static int outside(size_t thing, size_t bytes)
{
    const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC what = {.type = 1, .handle.fd = file, .size = bytes};
    int result = cu.cuImportExternalMemory(&externals[thing], &what);
    if (result)
        close(file);
    return result;
}

static int image(const char *what, size_t thing, size_t a, const char *text)
{
#define IS(name) (strcmp(what, name) == 0)
    if (IS("module")) return cu.cuModuleLoad(&modules[thing], text);
    if (IS("module-unload")) return cu.cuModuleUnload(modules[thing]);
    if (IS("launch")) return launch(thing, text);
    if (IS("library")) return cu.cuLibraryLoadFromFile(&libraries[thing], text, NULL, NULL, 0, NULL, NULL, 0);
    if (IS("library-unload")) return cu.cuLibraryUnload(libraries[thing]);
    if (IS("external")) return outside(thing, a);
    if (IS("external-destroy")) return cu.cuDestroyExternalMemory(externals[thing]);
    if (IS("multicast")) return multicast(thing, a);
    return -2;
#undef IS
}
