// What every call of the C ABI does at its edge: read the caller's structs whatever version they are of, and turn whatever
// went wrong into a status and an isoflash_error. No exception crosses.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

#include "errors/error.h"
#include "isoflash/isoflash.h"

struct isoflash_error {
  isoflash_status id = ISOFLASH_OK;
  std::string name, message, json;
  std::string why_not;
};

namespace iso {

// --- errors ----------------------------------------------------------------------------------------------------------

// All of these take NULL for an error that the caller does not want.
void clear(isoflash_error* error);
void fill(isoflash_error* error, const Error& from);
// Fills `error` from inside a catch block. If not even that finds memory, the id alone remains.
isoflash_status fill_from_exception(isoflash_error* error, const char* function) noexcept;

// Runs `call`, an Expected<void>(), and reports how it went.
template <class Call>
isoflash_status guarded(isoflash_error* error, const char* function, const Call& call) noexcept {
  clear(error);
  try {
    const Expected<void> outcome = call();
    if (outcome) return ISOFLASH_OK;
    fill(error, outcome.error());
    return outcome.error().id();
  } catch (...) {
    return fill_from_exception(error, function);
  }
}

// --- structs that may grow -------------------------------------------------------------------------------------------

// The caller's struct in this version's form: fields it does not have get their defaults; fields this version does not have
// must be zero. A size far beyond that is no struct_size at all and is not followed into memory. `first_size` is the size
// of the first version, which every caller has.
template <class T>
Expected<T> read_struct(const T* from, const char* name, std::size_t first_size, void (*init)(T*)) {
  constexpr std::size_t kMostGrowth = 4096;
  T to;
  init(&to);
  const std::size_t size = from->struct_size;
  bool known = size >= first_size && size <= sizeof(T) + kMostGrowth;
  if (known) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(from);
    for (std::size_t n = sizeof(T); n < size; ++n) known &= bytes[n] == 0;
  }
  if (!known) return raise(errors::StructSize{.struct_name = name, .got = size, .known = sizeof(T)});
  std::memcpy(&to, from, size < sizeof(T) ? size : sizeof(T));
  to.struct_size = sizeof(T);
  return to;
}

// A later version adds fields at the end: then today's size changes and the first one stays.
inline Expected<isoflash_problem> read_problem(const isoflash_problem* from) {
  constexpr std::size_t kFirstSize = 1552;
  static_assert(sizeof(isoflash_problem) == 3328);
  return read_struct(from, "isoflash_problem", kFirstSize, isoflash_problem_init);
}

}  // namespace iso
