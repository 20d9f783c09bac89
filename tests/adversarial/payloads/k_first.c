/* Executes one instruction, for ever, without a library: what the observer sees of this process is what it was given. */
__attribute__((naked, noreturn)) void _start(void)
{
    __asm__ volatile("1: jmp 1b");
}
