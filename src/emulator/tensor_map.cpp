#include "emulator/tensor_map.h"

namespace iso::emu {
namespace {

// Bit positions: word of 64 bits, lowest bit, width.
struct Field {
  int word, low, width;
};
constexpr Field kRank{1, 4, 3}, kType{1, 7, 4}, kInterleave{1, 11, 2}, kSwizzle{1, 13, 2}, kNanFill{1, 15, 1},
    kTf32{1, 16, 1};
constexpr Field kStride[] = {{1, 32, 32}, {2, 0, 32}, {2, 32, 32}, {3, 0, 32}};  // dimensions 1 to 4, in 16 bytes
constexpr Field kStrideHigh[] = {{3, 32, 4}, {3, 36, 4}, {3, 40, 4}, {3, 44, 4}};
constexpr Field kSize[] = {{4, 0, 32}, {4, 32, 32}, {5, 0, 32}, {5, 32, 32}, {6, 0, 32}};         // minus 1
constexpr Field kElementStride[] = {{6, 32, 3}, {6, 35, 3}, {6, 38, 3}, {6, 41, 3}, {6, 44, 3}};  // minus 1
constexpr Field kBox[] = {{6, 56, 8}, {7, 0, 8}, {7, 8, 8}, {7, 16, 8}, {7, 24, 8}};              // minus 1
constexpr Field kBoxBytes{8, 0, 32}, kAlignment{9, 0, 32};

u64 get(const u64 (&bits)[16], Field f) { return bits[f.word] >> f.low & ((u64{1} << f.width) - 1); }
void set(u64 (&bits)[16], Field f, u64 value) { bits[f.word] |= (value & ((u64{1} << f.width) - 1)) << f.low; }

// Types are numbered otherwise in the bits than in the API, where bf16 comes after f64.
u64 type_code(TensorType t) {
  if (t == TensorType::f64) return 9;
  if (t == TensorType::bf16) return 10;
  return static_cast<u64>(t);
}

bool type_of_code(u64 code, TensorType& out) {
  if (code > 10 || code == 8) return false;
  out = code == 9 ? TensorType::f64 : code == 10 ? TensorType::bf16 : static_cast<TensorType>(code);
  return true;
}

u32 swizzle_span(Swizzle mode) { return mode == Swizzle::none ? 0 : 16u << static_cast<int>(mode); }

std::string check(const TensorMapFields& f) {
  const auto dimension = [](const char* what, u32 d, u64 value) {
    return std::string(what) + "[" + std::to_string(d) + "] is " + std::to_string(value);
  };
  if (f.rank < 1 || f.rank > 5) return "rank " + std::to_string(f.rank) + " is not 1 to 5";
  if (f.address % 16) return "the global address is not a multiple of 16";
  if (f.nan_fill) return "NaN fill is not modelled";
  if (f.interleave) return "interleaved layouts are not modelled";
  u64 box_bytes = element_size(f.type);
  for (u32 d = 0; d < f.rank; d++) {
    if (f.size[d] < 1 || f.size[d] > (u64{1} << 32)) return dimension("size", d, f.size[d]) + ", expected 1 to 2^32";
    if (d > 0 && (f.stride[d] % 16 || f.stride[d] >= (u64{1} << 40)))
      return dimension("stride", d, f.stride[d]) + ", expected a multiple of 16 below 2^40";
    if (f.box[d] < 1 || f.box[d] > 256) return dimension("box", d, f.box[d]) + ", expected 1 to 256";
    if (f.element_stride[d] != 1) return dimension("element stride", d, f.element_stride[d]) + ", only 1 is modelled";
    box_bytes *= f.box[d];
  }
  const u32 inner = f.box[0] * static_cast<u32>(element_size(f.type));
  if (inner % 16) return "the innermost box has " + std::to_string(inner) + " bytes, expected a multiple of 16";
  if (f.swizzle != Swizzle::none && inner != swizzle_span(f.swizzle))
    return "the innermost box has " + std::to_string(inner) + " bytes, expected the span of its swizzle, " +
           std::to_string(swizzle_span(f.swizzle));
  if (box_bytes > 227 * 1024) return "the box has " + std::to_string(box_bytes) + " bytes, more than shared memory";
  return "";
}

}  // namespace

int element_size(TensorType type) {
  switch (type) {
    case TensorType::u8: return 1;
    case TensorType::u16:
    case TensorType::f16:
    case TensorType::bf16: return 2;
    case TensorType::u32:
    case TensorType::s32:
    case TensorType::f32: return 4;
    case TensorType::u64:
    case TensorType::s64:
    case TensorType::f64: return 8;
  }
  return 1;
}

u32 TensorMapFields::box_bytes() const {
  u32 bytes = static_cast<u32>(element_size(type));
  for (u32 d = 0; d < rank; d++) bytes *= box[d];
  return bytes;
}

std::string encode(const TensorMapFields& f, u64 (&bits)[16]) {
  for (u64& word : bits) word = 0;
  if (const std::string wrong = check(f); !wrong.empty()) return wrong;
  bits[0] = f.address;
  set(bits, kRank, f.rank - 1);
  set(bits, kType, type_code(f.type));
  set(bits, kSwizzle, static_cast<u64>(f.swizzle));
  for (u32 d = 0; d < f.rank; d++) {
    set(bits, kSize[d], f.size[d] - 1);
    set(bits, kBox[d], f.box[d] - 1);
    set(bits, kElementStride[d], f.element_stride[d] - 1);
    if (d == 0) continue;
    set(bits, kStride[d - 1], f.stride[d] / 16);
    set(bits, kStrideHigh[d - 1], f.stride[d] / 16 >> 32);
  }
  set(bits, kBoxBytes, f.box_bytes());
  set(bits, kAlignment, f.swizzle == Swizzle::none ? 16 : 8 * swizzle_span(f.swizzle));
  return "";
}

std::string decode(const u64 (&bits)[16], TensorMapFields& f) {
  f = {};
  if (!type_of_code(get(bits, kType), f.type) || get(bits, kTf32)) return "the element type is unknown";
  f.address = bits[0];
  f.rank = static_cast<u32>(get(bits, kRank)) + 1;
  f.swizzle = static_cast<Swizzle>(get(bits, kSwizzle));
  f.nan_fill = get(bits, kNanFill);
  f.interleave = static_cast<u32>(get(bits, kInterleave));
  f.stride[0] = static_cast<u64>(element_size(f.type));
  for (u32 d = 0; d < f.rank && f.rank <= 5; d++) {
    f.size[d] = get(bits, kSize[d]) + 1;
    f.box[d] = static_cast<u32>(get(bits, kBox[d])) + 1;
    f.element_stride[d] = static_cast<u32>(get(bits, kElementStride[d])) + 1;
    if (d > 0) f.stride[d] = (get(bits, kStrideHigh[d - 1]) << 32 | get(bits, kStride[d - 1])) * 16;
  }
  if (const std::string wrong = check(f); !wrong.empty()) return wrong;
  if (get(bits, kBoxBytes) != f.box_bytes()) return "the bits are not those of a tensor map";
  return "";
}

}  // namespace iso::emu
