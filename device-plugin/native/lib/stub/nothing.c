/* What 32-bit programs are given in the library's place: no CUDA driver of today serves them, and without a file of
 * their own the dynamic linker would complain on their stderr. */
extern const int egpu_nothing;
__attribute__((visibility("hidden"))) const int egpu_nothing = 0;
