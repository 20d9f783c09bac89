/*
 * The task that every contestant starts: one system call, no libc, no loader.
 *
 * Whatever the payload costs is paid by all contestants alike and only blurs the
 * difference between them, so it has to be as close to nothing as a process can be.
 *
 * It exits with 42 for each argument, so with 0 when timed. The script first starts it with one
 * argument: a contestant that exits 0 without starting anything would win every race.
 */
    .globl _start
    .text
_start:
#if defined(__x86_64__)
    movl (%rsp), %edi           /* argc */
    decl %edi
    imull $42, %edi, %edi
    movl $231, %eax             /* exit_group */
    syscall
#elif defined(__aarch64__)
    ldr x0, [sp]                /* argc */
    sub x0, x0, #1
    mov x1, #42
    mul x0, x0, x1
    mov x8, #94                 /* exit_group */
    svc #0
#else
#error "noop.S: add exit_group for this architecture"
#endif
    .section .note.GNU-stack, "", %progbits
