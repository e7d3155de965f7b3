// A driver from before tensor maps and libraries: it has two functions.
extern "C" __attribute__((visibility("default"))) int cuInit(unsigned) { return 0; }
extern "C" __attribute__((visibility("default"))) int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}
