# iso_emu_switch(void** save, void* load): pushes the registers that the System V ABI lets a callee keep, saves the stack
# pointer in *save, and continues where `load` was saved. No system call, unlike swapcontext.
  .text
  .globl iso_emu_switch
  .hidden iso_emu_switch
  .type iso_emu_switch, @function
iso_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size iso_emu_switch, .-iso_emu_switch
  .section .note.GNU-stack, "", @progbits
