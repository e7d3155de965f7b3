#include "validate/paging.h"

#include "base/math.h"
#include "validate/propagate.h"
#include "validate/tensor.h"

namespace iso {

Expected<i32> read_page_capacity(const isoflash_problem& d, const Problem& p) {
  const auto shape = read_tensor(d.block_table, "block_table");
  if (!shape) return tl::unexpected(shape.error());
  if (shape->rank != 2 || shape->shape[0] != p.batch)
    return raise(errors::BlockTableShape{.got = shape_text(*shape), .batch = p.batch});
  if (p.rows_kv < 1 || p.rows_kv >= kMaxSeqlen) return raise(errors::PageSize{.got = p.rows_kv, .max = kMaxSeqlen - 1});
  if (d.seqused_kv.rank == 0) return raise(errors::PagedWithoutSeqused{});
  const i64 most_pages = ceil_div<i64>(kMaxSeqlen, p.rows_kv);  // keeps the product in range
  return static_cast<i32>(min_of<i64>(min_of(shape->shape[1], most_pages) * p.rows_kv, kMaxSeqlen - 1));
}

Expected<void> read_pages(const isoflash_problem& d, const Problem& p, std::vector<Sequence>& sequences,
                          MaskArrays& arrays) {
  const auto table = read_index_tensor(d.block_table, "block_table");
  if (!table) return tl::unexpected(table.error());
  const i32 page_size = static_cast<i32>(p.rows_kv);
  const auto pages_of = [&](const Sequence& s) { return ceil_div<i64>(s.seqlen_cached, page_size); };
  i64 total = 1;  // so that there is an address even if nobody has a page
  for (const Sequence& s : sequences) total += pages_of(s);
  arrays.block_table.assign(static_cast<std::size_t>(total), 0);

  i32* to = arrays.block_table.data();
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    Sequence& s = sequences[b];
    s.page_size = page_size;
    s.block_table = to;
    for (i64 n = 0; n < pages_of(s); ++n) {
      const i32 page =
          static_cast<const i32*>(table->data)[static_cast<i64>(b) * table->strides[0] + n * table->strides[1]];
      if (page < 0 || page >= p.num_pages)
        return raise(errors::PageIdRange{.batch_index = b,
                                         .index = n,
                                         .got = page,
                                         .num_pages = p.num_pages,
                                         .pages_used = pages_of(s),
                                         .seqused = s.seqlen_cached});
      *to++ = page;
    }
  }
  return {};
}

}  // namespace iso
