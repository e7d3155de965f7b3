#include "api/boundary.h"

#include <exception>
#include <new>
#include <stdexcept>

namespace iso {

void clear(isoflash_error* error) {
  if (error == nullptr) return;
  error->id = ISOFLASH_OK;
  error->name.clear();
  error->message.clear();
  error->json.clear();
  error->why_not.clear();
}

void fill(isoflash_error* error, const Error& from) {
  if (error == nullptr) return;
  error->id = from.id();
  error->name = from.name();
  error->message = from.message();
  error->json = from.json();
}

isoflash_status fill_from_exception(isoflash_error* error, const char* function) noexcept {
  isoflash_status id = errors::Internal::kId;
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      id = errors::OutOfMemory::kId;
      fill(error, make_error(errors::OutOfMemory{.what = function}));
    } catch (const std::length_error&) {  // a container asked for more than any memory holds
      id = errors::OutOfMemory::kId;
      fill(error, make_error(errors::OutOfMemory{.what = function}));
    } catch (const std::exception& e) {
      fill(error, make_error(errors::Internal{.where = function, .what = e.what()}));
    } catch (...) {
      fill(error, make_error(errors::Internal{.where = function, .what = "unknown exception"}));
    }
  } catch (...) {
    clear(error);
    if (error != nullptr) error->id = id;
  }
  return id;
}

}  // namespace iso
