// Registers of a warpgroup, dependencies between grids.
#pragma once

namespace iso::instr {

template <int kRegisters>
void setmaxnreg_inc(Location at = Location::here()) {
  emu::setmaxnreg(kRegisters, true, at);
}
template <int kRegisters>
void setmaxnreg_dec(Location at = Location::here()) {
  emu::setmaxnreg(kRegisters, false, at);
}
inline void griddepcontrol_wait(Location at = Location::here()) {
  if (!emu::removed("griddepcontrol.wait", at)) emu::griddepcontrol_wait(at);
}
inline void griddepcontrol_launch_dependents(Location at = Location::here()) { emu::griddepcontrol_launch_dependents(at); }

}  // namespace iso::instr
