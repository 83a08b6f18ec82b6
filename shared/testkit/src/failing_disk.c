/* A disk that fails at one call: preloaded into a program by failing_disk.rs.
 *
 * A seccomp filter has the kernel send SIGSYS for every call that writes, syncs or renames, also for those that do not go
 * through the C library. The handler counts the calls that are about files under one folder, has the wanted one fail, and
 * carries out all others itself, with a mark in the sixth argument that the filter lets pass. Programs that this one
 * starts are not meant to be tried: they would die of the signal. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define MARK 0x6d636f6465UL
#define PATH_MAX_ 4096

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#define NUMBER(uc) ((uc)->uc_mcontext.gregs[REG_RAX])
#define RESULT(uc) ((uc)->uc_mcontext.gregs[REG_RAX])
static const int registers[6] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};
#define ARGUMENT(uc, n) ((uc)->uc_mcontext.gregs[registers[n]])
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#define NUMBER(uc) ((uc)->uc_mcontext.regs[8])
#define RESULT(uc) ((uc)->uc_mcontext.regs[0])
#define ARGUMENT(uc, n) ((uc)->uc_mcontext.regs[n])
#else
#error "not known how calls are made here"
#endif

static char under[PATH_MAX_];
static size_t under_length;
static long fail_at;
static char how;
static const char *fired_file;
static long count;

static long call(long number, long a, long b, long c, long d, long e) {
    long result = syscall(number, a, b, c, d, e, MARK);
    return result == -1 ? -errno : result;
}

static int is_under(const char *path) { return strncmp(path, under, under_length) == 0; }

static int fd_is_under(int fd) {
    char link[64] = "/proc/self/fd/", digits[16];
    char path[PATH_MAX_];
    int at = 0, end = (int)strlen(link);
    if (fd == AT_FDCWD) {
        strcpy(link, "/proc/self/cwd");
    } else if (fd < 0) {
        return 0;
    } else {
        do {
            digits[at++] = (char)('0' + fd % 10);
            fd /= 10;
        } while (fd > 0);
        while (at > 0) link[end++] = digits[--at];
        link[end] = 0;
    }
    ssize_t length = readlink(link, path, sizeof(path) - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return is_under(path);
}

static int name_is_under(int folder, const char *path) {
    return path[0] == '/' ? is_under(path) : fd_is_under(folder);
}

/* Whether a call is about the folder, and whether it needs space. */
static int concerns(long number, const long *a, int *needs_space) {
    *needs_space = 1;
    switch (number) {
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64:
    case SYS_ftruncate:
        return fd_is_under((int)a[0]);
    case SYS_fsync:
    case SYS_fdatasync:
        *needs_space = 0;
        return fd_is_under((int)a[0]);
#ifdef SYS_rename
    case SYS_rename:
        return name_is_under(AT_FDCWD, (const char *)a[1]);
#endif
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2:
    case SYS_linkat:
        return name_is_under((int)a[2], (const char *)a[3]);
    default:
        return 0;
    }
}

static void fired(void) {
    long fd = call(SYS_openat, AT_FDCWD, (long)fired_file, O_CREAT | O_WRONLY, 0600, 0);
    if (fd >= 0) call(SYS_close, fd, 0, 0, 0, 0);
}

static void on_call(int signal, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    int saved = errno, needs_space;
    long number = (long)NUMBER(uc), a[5];
    (void)signal;
    (void)info;
    for (int n = 0; n < 5; n++) a[n] = (long)ARGUMENT(uc, n);
    long result = 0;
    int fails = 0;
    int is_write = number == SYS_write || number == SYS_pwrite64;
    int counts = concerns(number, a, &needs_space) && (how != 'f' || needs_space) && (how != 'h' || (is_write && a[2] > 1));
    if (counts) {
        long at = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
        if (at == fail_at) fired();
        /* k: the power is cut. e: one call fails. f: the disk is full from here on. h: of a write half is done. */
        if (how == 'k' && at == fail_at) {
            call(SYS_kill, getpid(), SIGKILL, 0, 0, 0);
        } else if (how == 'e' && at == fail_at) {
            fails = 1;
            result = -EIO;
        } else if (how == 'f' && at >= fail_at && fail_at > 0) {
            fails = 1;
            result = -ENOSPC;
        } else if (how == 'h' && at == fail_at) {
            /* The rest of it, if it is tried, does not fit either; of a power cut it is what was on its way. */
            call(number, a[0], a[1], a[2] / 2, a[3], 0);
            call(SYS_kill, getpid(), SIGKILL, 0, 0, 0);
        }
    }
    if (!fails) result = call(number, a[0], a[1], a[2], a[3], a[4]);
    RESULT(uc) = result;
    errno = saved;
}

static void give_up(const char *why) {
    write(2, why, strlen(why));
    _exit(97);
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("MCODE_FAIL_UNDER"), *at = getenv("MCODE_FAIL_AT"), *what = getenv("MCODE_FAIL_HOW");
    fired_file = getenv("MCODE_FAIL_FIRED");
    if (!folder || !at || !what || !fired_file || strlen(folder) >= sizeof(under)) return;
    strcpy(under, folder);
    under_length = strlen(under);
    fail_at = atol(at);
    how = what[0];
    struct sigaction action = {0};
    action.sa_sigaction = on_call;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
    if (sigaction(SIGSYS, &action, NULL)) give_up("failing disk: no handler\n");
    static const unsigned int watched[] = {
        SYS_write, SYS_writev, SYS_pwrite64, SYS_ftruncate, SYS_fsync, SYS_fdatasync, SYS_renameat2, SYS_linkat,
#ifdef SYS_rename
        SYS_rename,
#endif
#ifdef SYS_renameat
        SYS_renameat,
#endif
    };
    enum { WATCHED = sizeof(watched) / sizeof(watched[0]) };
    struct sock_filter filter[WATCHED + 8];
    unsigned short n = 0;
#define PUT(...) filter[n++] = (struct sock_filter)__VA_ARGS__
    PUT(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
    PUT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0, WATCHED + 3));
    PUT(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])));
    PUT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)MARK, WATCHED + 1, 0));
    PUT(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    for (int i = 0; i < WATCHED; i++) PUT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, watched[i], (unsigned char)(WATCHED - i), 0));
    PUT(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    PUT(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
    struct sock_fprog program = {.len = n, .filter = filter};
    /* Root needs not give its privileges up; the daemon serves no client that has. */
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) return;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        give_up("failing disk: no filter\n");
    }
}
