//! Other processes, sockets, the kernel, the network.

use crate::stage::{Held, Script, Try};

const fn shell(name: &'static str, script: &'static str) -> Try {
    Try { name, held: Held::Always, offline: false, root: false, shell: Script::Shell(script) }
}

const fn as_root(attempt: Try) -> Try {
    Try { root: true, ..attempt }
}

const fn python(name: &'static str, script: &'static str) -> Try {
    Try { name, held: Held::Always, offline: false, root: false, shell: Script::Python(script) }
}

const fn offline(name: &'static str, script: &'static str) -> Try {
    Try { name, held: Held::Always, offline: true, root: false, shell: Script::Python(script) }
}

pub(crate) const PROCESSES: &[Try] = &[
    shell("end another process", "kill -9 $OUTSIDER"),
    shell("stop the daemon", "kill -0 $DAEMON && echo BROKEN"),
    python("a signal by a descriptor", "
f = os.pidfd_open(OUTSIDER)
signal.pidfd_send_signal(f, signal.SIGKILL)"),
    python("attach to the daemon", "
if libc.ptrace(0x4206, DAEMON, 0, 0) == 0: print('BROKEN')"),
    python("attach to the outsider", "
if libc.ptrace(0x4206, OUTSIDER, 0, 0) == 0: print('BROKEN')"),
    python("open the memory of the daemon", "os.open('/proc/%d/mem' % DAEMON, os.O_RDWR); print('BROKEN')"),
    python("read the memory of the daemon", "os.open('/proc/%d/mem' % DAEMON, os.O_RDONLY); print('BROKEN')"),
    python("the maps of the daemon", "print('BROKEN' if open('/proc/%d/maps' % DAEMON).read() else '')"),
    python("copy memory of the outsider", "
class Iov(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
b = ctypes.create_string_buffer(8)
at = int(open('/proc/%d/stat' % OUTSIDER).read().rsplit(')', 1)[1].split()[25]) or int(open('/proc/%d/maps' % OUTSIDER).read().split('-')[0], 16)
here, there = Iov(ctypes.addressof(b), 8), Iov(at, 8)
if libc.process_vm_readv(OUTSIDER, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) == 8: print('BROKEN')"),
    python("take a descriptor of the daemon", "
if libc.syscall(438, os.pidfd_open(DAEMON), 0, 0) >= 0: print('BROKEN')"),
    python("where the descriptors of the daemon lead", "print('BROKEN', os.readlink('/proc/%d/fd/1' % DAEMON))"),
    python("enter the daemon's namespaces by its folder", "os.open('/proc/%d/ns/mnt' % DAEMON, os.O_RDONLY); print('BROKEN')"),
    python("connect to an abstract socket", "
s = socket.socket(socket.AF_UNIX); s.connect('\\0' + os.environ['ABSTRACT']); print('BROKEN')"),
    Try {
        name: "connect to the daemon's socket",
        held: Held::WithNamespaces,
        offline: false, root: false,
        shell: Script::Python("s = socket.socket(socket.AF_UNIX); s.connect(SOCK); print('BROKEN')"),
    },
    as_root(python("make a device", "
os.mknod(W + '/disk', 0o600 | 0o060000, os.makedev(7, 0)); print('BROKEN')")),
    as_root(python("mount something", "
os.mkdir(W + '/m')
if libc.mount(b'tmpfs', (W + '/m').encode(), b'tmpfs', 0, 0) == 0: print('BROKEN', libc.umount2((W + '/m').encode(), 2))")),
    as_root(python("what the kernel says", "
os.open('/proc/kmsg', os.O_RDONLY | os.O_NONBLOCK); print('BROKEN')")),
    as_root(shell("the machine's own settings", "echo 1 > /proc/sys/vm/drop_caches && echo BROKEN")),
    as_root(python("files by number, past any path", "
class Handle(ctypes.Structure): _fields_ = [('bytes', ctypes.c_uint), ('type', ctypes.c_int), ('data', ctypes.c_char * 128)]
h, m = Handle(128), ctypes.c_int()
if libc.name_to_handle_at(-100, (OUT + '/file').encode(), ctypes.byref(h), ctypes.byref(m), 0): sys.exit(2)
if libc.open_by_handle_at(os.open(W, os.O_RDONLY), ctypes.byref(h), 0) >= 0: print('BROKEN')")),
];

pub(crate) const NETWORK: &[Try] = &[
    offline("TCP", "socket.create_connection(('127.0.0.1', int(os.environ['TCP']))); print('BROKEN')"),
    offline(
        "UDP",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', int(os.environ['UDP'])))",
    ),
    offline(
        "a name asked of a server",
        "
query = bytes.fromhex('abcd01000001000000000000') + b'\\x01x\\x04test\\x00' + bytes.fromhex('00010001')
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(query, ('127.0.0.1', int(os.environ['UDP'])))",
    ),
    as_root(offline(
        "a raw packet",
        "
import struct
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
s.sendto(struct.pack('!HHHH', 9, int(os.environ['UDP']), 9, 0) + b'x', ('127.0.0.1', 0))",
    )),
    offline(
        "IPv6",
        "
socket.create_connection(('::ffff:127.0.0.1', int(os.environ['TCP']))); print('BROKEN')",
    ),
    offline(
        "the machine's interfaces",
        "
import struct, fcntl
names = [name for _, name in socket.if_nameindex()]
if set(names) - {'lo'}: print('BROKEN', names)",
    ),
    as_root(offline("packets", "socket.socket(17, socket.SOCK_RAW, 0); print('BROKEN')")),
    offline("another machine's processor", "socket.socket(40, socket.SOCK_STREAM, 0); print('BROKEN')"),
    offline(
        "sockets by io_uring",
        "
b = ctypes.create_string_buffer(120)
if libc.syscall(425, 4, b) >= 0: print('BROKEN')",
    ),
    Try {
        name: "bash's own TCP",
        held: Held::Always,
        offline: true,
        root: false,
        shell: Script::Shell("bash -c 'exec 3<>/dev/tcp/127.0.0.1/'$TCP' && echo BROKEN'"),
    },
    Try {
        name: "from a child in a session of its own",
        held: Held::Always,
        offline: true,
        root: false,
        shell: Script::Shell(
            "setsid -w $PYTHON -c \"import socket,os; socket.create_connection(('127.0.0.1', int(os.environ['TCP']))); print('BROKEN')\"",
        ),
    },
];

const fn limited(name: &'static str, shell: Script) -> Try {
    Try { name, held: Held::WithProcessLimit, offline: false, root: false, shell }
}

pub(crate) const QUOTAS: &[Try] = &[
    limited(
        "fork without end",
        Script::Python(
            "
children = []
try:
    while len(children) < 300:
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
except OSError: pass
if len(children) == 300: print('BROKEN')
for child in children: os.kill(child, signal.SIGKILL)",
        ),
    ),
    limited(
        "threads without end",
        Script::Python(
            "
import threading
threading.stack_size(65536)
end, count = threading.Event(), 0
try:
    while count < 300:
        threading.Thread(target=end.wait).start()
        count += 1
except RuntimeError: pass
if count == 300: print('BROKEN')
end.set()",
        ),
    ),
    Try {
        name: "memory without end",
        held: Held::WithMemoryLimit,
        offline: false,
        root: false,
        shell: Script::Shell(
            "python3 -c \"held = bytearray(512 << 20); print('BRO' + 'KEN')\"
[ $(cat /proc/self/oom_score_adj) -ge 500 ] || echo BROKEN",
        ),
    },
    shell(
        "fill the disk with one file",
        "
head -c 64M /dev/zero > big; [ $(stat -c %s big) -gt 33554432 ] && echo BROKEN; rm big",
    ),
    shell(
        "claim the disk for one file",
        "
fallocate -l 64M big; [ $(stat -c %s big) -gt 33554432 ] && echo BROKEN; rm big",
    ),
    python(
        "a file that others find full",
        "
f = os.open('big', os.O_RDWR | os.O_CREAT)
try: os.ftruncate(f, 1 << 40)
except OSError: pass
if os.fstat(f).st_size > 33554432: print('BROKEN')",
    ),
];
