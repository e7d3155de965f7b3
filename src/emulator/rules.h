// Rules that can be switched off, because they rest on an observation or on a strict reading of the PTX manual. All others
// are always on. docs/emulator.md lists every rule with its source.
#pragma once

namespace iso::emu {

struct Rules {
  // Innermost start coordinate of tiled loads, stores and reductions is a multiple of 16 bytes. No manual says so; an
  // H200 raises "illegal instruction" otherwise.
  bool tma_start_16_bytes = true;
  // A global write of the async proxy in one CTA, read or overwritten by the async proxy in another, needs a
  // fence.proxy.async on the way: PTX orders operations of one proxy without it only within one thread block.
  bool async_proxy_across_ctas = true;
  // A wgmma.fence must follow the last access to accumulators and A fragments before they are used: what the manual asks
  // for; without the rule one fence after the last wait is enough.
  bool wgmma_fence_after_register_access = true;
};

}  // namespace iso::emu
