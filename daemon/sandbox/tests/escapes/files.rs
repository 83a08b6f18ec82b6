//! Writing outside, reading what is hidden, changing what is fixed.

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

const fn told(attempt: Try) -> Try {
    Try { held: Held::WithNamespacesElseTold, ..attempt }
}

const fn namespaces(attempt: Try) -> Try {
    Try { held: Held::WithNamespaces, ..attempt }
}

pub(crate) const WRITES: &[Try] = &[
    shell("write a new file", "echo x > $OUT/new"),
    shell("append", "echo x >> $OUT/file"),
    shell("overwrite by a copy", "cp mine $OUT/file"),
    shell("write below by ..", "echo x > ../out/new"),
    shell("write through a link to a folder", "ln -s $OUT l; echo x > l/new"),
    shell("write through a link to a file", "ln -s $OUT/file l; echo x > l"),
    shell("a hard link into the project, then write", "ln $OUT/file l && echo x > l"),
    shell("a hard link out of the project", "ln mine $OUT/new"),
    shell("move in", "mv $OUT/file here"),
    shell("move out", "mv mine $OUT/new"),
    shell("rename within", "mv $OUT/file $OUT/other"),
    shell("remove", "rm -f $OUT/file"),
    shell("remove a folder", "rm -rf $OUT/dir"),
    shell("make a folder", "mkdir $OUT/new"),
    shell("make a link", "ln -s /etc/passwd $OUT/new"),
    shell("make a pipe", "mkfifo $OUT/new"),
    shell("truncate", "truncate -s 0 $OUT/file"),
    shell("write through /proc/self/root", "echo x > /proc/self/root$OUT/new"),
    shell("write through /proc/self/cwd", "cd $OUT && echo x > /proc/self/cwd/new"),
    shell("write through the root of the outsider", "echo x > /proc/$OUTSIDER/root$OUT/new"),
    shell("write through the folder of the daemon", "echo x > /proc/$DAEMON/root$OUT/new"),
    shell("a subshell in the background", "(setsid sh -c 'echo x > $OUT/new' & wait)"),
    shell("an awk program", "awk 'BEGIN { print \"x\" > ENVIRON[\"OUT\"] \"/new\" }'"),
    shell("unpack an archive", "mkdir a; echo x > a/new; tar cf t.tar -C a new; tar xf t.tar -C $OUT"),
    shell("dd without truncating", "echo x | dd of=$OUT/file conv=notrunc 2>/dev/null"),
    python("python", "open(OUT + '/new', 'w').write('x')"),
    python("truncate by a system call", "os.truncate(OUT + '/file', 0)"),
    python(
        "a file without a name, then linked",
        "
f = os.open(OUT, os.O_TMPFILE | os.O_WRONLY)
os.write(f, b'x')
if libc.linkat(-100, b'/proc/self/fd/%d' % f, -100, (OUT + '/new').encode(), 0x400): sys.exit(1)",
    ),
    python(
        "a file without a name of the project, linked out",
        "
f = os.open(W, os.O_TMPFILE | os.O_WRONLY)
if libc.linkat(-100, b'/proc/self/fd/%d' % f, -100, (OUT + '/new').encode(), 0x400): sys.exit(1)",
    ),
    python(
        "from a descriptor of a folder",
        "
f = os.open(OUT, os.O_PATH)
g = os.open('new', os.O_WRONLY | os.O_CREAT, dir_fd=f)",
    ),
    python(
        "reopened for writing",
        "
f = os.open(OUT + '/file', os.O_RDONLY)
os.write(os.open('/proc/self/fd/%d' % f, os.O_WRONLY | os.O_TRUNC), b'x')",
    ),
    python(
        "a shared map",
        "
import mmap
f = os.open(OUT + '/file', os.O_RDWR)
m = mmap.mmap(f, 2); m[0:1] = b'X'; m.flush()",
    ),
    python(
        "two names exchanged",
        "
if libc.renameat2(-100, (W + '/mine').encode(), -100, (OUT + '/file').encode(), 2): sys.exit(1)",
    ),
    python("a socket file", "socket.socket(socket.AF_UNIX).bind(OUT + '/s')"),
    python(
        "inherited descriptors",
        "
for n in range(3, 1024):
    try:
        if os.readlink('/proc/self/fd/%d' % n).startswith('/') and n < 3: print('x')
    except OSError: pass
os.open(OUT + '/new', os.O_WRONLY | os.O_CREAT)",
    ),
    as_root(python(
        "after forgetting the root by chroot",
        "
os.chroot(OUT); os.chdir('/'); open('/new', 'w').write('x')",
    )),
    namespaces(shell("chmod", "chmod 777 $OUT/file")),
    namespaces(shell("touch an old date", "touch -d 2001-01-01 $OUT/file")),
    namespaces(python(
        "chmod by descriptor",
        "os.chmod('/proc/self/fd/%d' % os.open(OUT + '/file', os.O_RDONLY), 0o777)",
    )),
];

pub(crate) const READS: &[Try] = &[
    shell("cat", "cat $HID/secret"),
    shell("a redirection", "read line < $HID/secret; echo $line; while read a; do echo $a; done < $HID/secret"),
    shell("grep a tree", "grep -r . $HID"),
    shell("copy in, then read", "cp $HID/secret s; cat s"),
    shell("move in, then read", "mv $HID/secret s; cat s"),
    shell("a hard link, then read", "ln $HID/secret s; cat s"),
    shell("a link, then read", "ln -s $HID/secret s; cat s"),
    shell("a link that was there", "cat $OUT/link"),
    shell("by ..", "cat ../hid/secret"),
    shell("through /proc/self/root", "cat /proc/self/root$HID/secret"),
    shell("through the root of the outsider", "cat /proc/$OUTSIDER/root$HID/secret"),
    shell("archive it", "tar cf - -C $HID secret | tar xOf -"),
    shell("the environment of the outsider", "tr '\\0' '\\n' < /proc/$OUTSIDER/environ"),
    namespaces(shell("another's shared memory", "cat $SHARED")),
    shell("run it as a script", "sh $HID/secret; . $HID/secret"),
    python("python reads", "print(open(HID + '/secret').read())"),
    python(
        "python maps",
        "
import mmap
print(mmap.mmap(os.open(HID + '/secret', os.O_RDONLY), 0, prot=mmap.PROT_READ)[:])",
    ),
    python(
        "by its folder's descriptor",
        "
f = os.open(HID, os.O_PATH)
print(os.read(os.open('secret', os.O_RDONLY, dir_fd=f), 100))",
    ),
    python(
        "reopened from a path descriptor",
        "
f = os.open(HID + '/secret', os.O_PATH)
print(open('/proc/self/fd/%d' % f).read())",
    ),
    python(
        "sent by the kernel",
        "
f = os.open(HID + '/secret', os.O_RDONLY)
os.sendfile(1, f, 0, 100)",
    ),
];

pub(crate) const FIXED: &[Try] = &[
    told(shell("plant a hook", "echo x > .git/hooks/post-checkout")),
    told(shell("change a hook", "echo x >> .git/hooks/pre-commit")),
    told(shell("make a hook executable", "chmod +x .git/hooks/pre-commit")),
    told(shell("remove a hook", "rm -f .git/hooks/pre-commit")),
    told(shell("move the hooks away", "mv .git/hooks .git/h; mkdir .git/hooks; echo x > .git/hooks/pre-push")),
    told(shell("move .git away", "mv .git g; mkdir -p .git/hooks; echo x > .git/hooks/pre-push")),
    told(shell("replace the config", "echo x > c; mv -f c .git/config")),
    told(shell("append to the config", "printf '[core]\\n\\tfsmonitor = ./x\\n' >> .git/config")),
    told(shell("git sets the hooks' path", "git config core.hooksPath $W/x")),
    told(shell("from within", "cd .git/hooks && echo x > post-commit")),
    told(shell("change the project's mcode", "echo 'approve = \"all\"' > .mcode/config.toml")),
    told(shell("move the project's mcode away", "mv .mcode m; mkdir .mcode; echo x > .mcode/config.toml")),
    told(shell("a hard link to a hook", "ln .git/hooks/pre-commit h && echo x > h")),
    told(shell("plant a hook in a repository below", "echo 'touch x' > vendor/sub/.git/hooks/pre-commit")),
    told(shell("git sets a program in a repository below", "git -C vendor/sub config core.fsmonitor 'touch x'")),
    told(shell(
        "another repository in the place of one below",
        "mv vendor/sub/.git x; mkdir vendor/sub/.git; echo x > vendor/sub/.git/config",
    )),
    told(shell(
        "another folder in the place of one above it",
        "mv vendor v; mkdir -p vendor/sub/.git/hooks; echo x > vendor/sub/.git/hooks/pre-push",
    )),
    told(shell("other settings of a repository below", "rm vendor/sub/.git/config; cp mine vendor/sub/.git/config")),
    told(shell("a hook where the settings say", "echo x > vendor/sub/own/pre-push")),
    told(shell("another hook where the settings say", "echo x >> vendor/sub/own/post-merge")),
    told(shell("the folder of hooks in the project is moved", "mv vendor/sub/own o; mkdir vendor/sub/own")),
    told(shell("a program that the settings name", "echo x >> vendor/sub/tool.sh")),
    told(shell("unmount", "umount .git/hooks; umount -l .git/hooks; echo x > .git/hooks/new")),
    told(shell("mount again as writable", "mount -o remount,rw,bind .git/hooks; echo x > .git/hooks/new")),
    told(shell(
        "mount in a namespace of its own",
        "unshare -Urm sh -c 'umount .git/hooks; mount -o remount,rw,bind .git/hooks; echo x > .git/hooks/new'; \
         unshare -m sh -c 'umount .git/hooks; echo x > .git/hooks/new'",
    )),
];

/// What is not there before, so that nothing can be fixed: it must not be there afterwards.
pub(crate) const PLANTED: &[Try] = &[
    shell("another common folder of a repository", "echo ../evil > .git/commondir"),
    shell("another common folder of a repository below", "echo ../../../evil > vendor/sub/.git/commondir"),
    shell("a link in the place of a common folder", "echo ../evil > x; ln -s ../x .git/commondir"),
    shell("further settings that a repository includes", "printf '[core]\n\tfsmonitor = ./x\n' > vendor/sub/later"),
    shell("a hook in a repository of its own", "git init -q new; echo x > new/.git/hooks/pre-push"),
    shell(
        "settings that run something in a repository of its own",
        "git init -q other; git -C other config core.fsmonitor ./x",
    ),
];

/// Deny rules on files of the project: see [`crate::stage::Stage::denied`].
pub(crate) const DENIED: &[Try] = &[
    shell("a denied file is read", "cat .env"),
    shell("a script reads it", "sh ./read.sh"),
    shell("make reads it", "make -s read"),
    shell("a denied file deep below is read", "cat conf/deep/.env"),
    shell("by a variable", "name=.e; cat ${name}nv"),
    shell("by all names", "cat conf/* .e*"),
    shell("a denied file by another name that was there", "cat another"),
    shell("a denied file by a link that was there", "cat link"),
    shell("a denied file by a link of its own", "ln -s .env mine-too; cat mine-too"),
    shell("a denied file by a hard link of its own", "ln .env mine-too; cat mine-too"),
    shell("a denied file is moved, then read", "mv .env moved; cat moved"),
    shell("the folder above it is moved, then it is read", "mv conf moved; cat moved/key.pem moved/deep/.env"),
    shell("the two names are exchanged", "mv conf/key.pem x; mv mine conf/key.pem; cat x"),
    shell("a tree with it is copied", "cp -r conf other; cat other/key.pem other/deep/.env"),
    shell("it is archived", "tar cf - .env conf | tar xOf -"),
    shell("it is unmounted", "umount .env; umount -l conf/key.pem; cat .env conf/key.pem"),
    python("python reads a denied file", "print(open(W + '/.env').read())"),
    python(
        "a descriptor of a denied file",
        "print(open('/proc/self/fd/%d' % os.open(W + '/conf/key.pem', os.O_PATH)).read())",
    ),
    told(shell("a script changes what may not be changed", "sh ./write.sh")),
    told(shell("make changes what may not be changed", "make -s write")),
    told(shell("a denied file is overwritten", "echo x > .env")),
    told(shell("a denied file is removed", "rm -f conf/key.pem")),
    told(shell("another file takes its place", "cp mine x; mv -f x .env")),
    told(shell("what may not be changed is changed", "echo x >> kept/file")),
    told(shell("a file is made in a folder that may not be changed", "echo x > kept/new")),
    told(shell("a folder that may not be changed is moved", "mv kept other; mkdir kept")),
    told(shell("a file that may not be changed by another name", "echo x >> lock-too")),
    told(shell("it is replaced", "cp mine x; mv -f x lock")),
];
