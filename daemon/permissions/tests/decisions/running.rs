//! Commands that run something which is no word of theirs: expressions, options, variables, what `git` keeps.

use Verdict::{Allow, Ask, Deny};
use mcode_events::run::ApprovalPolicy;
use mcode_permissions::Verdict;

use crate::setting::{BUILD, Setting, rules, shell};

const ALL: Setting = Setting { policy: ApprovalPolicy::All, ..BUILD };

/// Under deny rules these ask or are denied, whatever the policy, and no rule about the program allows them.
#[test]
fn a_word_that_goes_on_in_the_next_line_is_not_taken_for_two() {
    let set = rules(&["shell(tar *)", "shell(sort *)"], &[], &["shell(touch *)", "shell(git push *)"]);
    for text in [
        "to\\\nuch P",
        "env A=1 to\\\nuch P",
        "s\\\nh -c 'touch P'",
        "sh -c 'to\\\nuch P'",
        "ev\\\nal 'touch P'",
        "gi\\\nt push",
        "echo $(to\\\nuch P)",
        "echo $\\\n(touch P)",
        "true &\\\n& touch P",
        "cat <<E\n$(to\\\nuch P)\nE",
        "\"to\\\nuch\" P",
        "tar -\\\nI 'touch P' -cf x.tar a",
        "sort a -\\\no P",
        "$\\\n'to\\\nuch' P",
    ] {
        assert_ne!(shell(&set, text, BUILD), Allow, "{text:?}");
        assert_ne!(shell(&set, text, ALL), Allow, "{text:?}");
    }
    for text in
        ["ls -l \\\n  -a", "ls -l\\\n  -a", "ls &&\\\nls", "echo 'a\\\nb'", "cat <<'E'\na\\\nb\nE", "echo a\\\\\nls"]
    {
        assert_eq!(shell(&set, text, ALL), Allow, "{text:?}");
    }
}

fn held(commands: &[&str]) {
    let denied = rules(&["shell"], &[], &["shell(git push *)", "view(secret)"]);
    for text in commands {
        assert!(shell(&denied, text, ALL) >= Ask, "{text} under deny rules");
        let program = text.split([' ', ';']).find(|word| !word.contains('=')).unwrap_or("x");
        let allowed = rules(&[&format!("shell({program} *)"), "shell(echo *)"], &[], &[]);
        assert_eq!(shell(&allowed, text, BUILD), Ask, "{text} under an allow rule for {program}");
    }
}

/// Under the same deny rules these run.
fn free(commands: &[&str]) {
    let denied = rules(&["shell"], &[], &["shell(git push *)", "view(secret)", "view(**/*.pem)"]);
    for text in commands {
        assert_eq!(shell(&denied, text, ALL), Allow, "{text}");
    }
}

fn refused(commands: &[&str]) {
    let denied = rules(&["shell"], &[], &["shell(git push *)", "view(secret)"]);
    for text in commands {
        assert_eq!(shell(&denied, text, ALL), Deny, "{text}");
    }
}

#[test]
fn text_that_the_shell_evaluates_asks() {
    held(&[
        "[[ -v 'a[$(cmd)]' ]]",
        "[[ -R 'a[$(cmd)]' ]]",
        "test -v 'a[$(cmd)]'",
        "[ -v 'a[$(cmd)]' ]",
        "printf -v 'a[$(cmd)]' x",
        "read 'a[$(cmd)]' <<< x",
        "read -r -p x 'a[$(cmd)]'",
        "mapfile 'a[$(cmd)]' < f",
        "getopts x 'a[$(cmd)]'",
        "wait -n -p 'a[$(cmd)]'",
        "declare 'a[$(cmd)]=1'",
        "typeset -i x='a[$(cmd)]'",
        "local 'a[$(cmd)]'",
        "export 'a[$(cmd)]=1'",
        "readonly 'a[$(cmd)]=1'",
        "declare -n r='a[$(cmd)]'; echo $r",
        "let 'x=a[$(cmd)]'",
        "unset 'a[$(cmd)]'",
        "x='a[$(cmd)]'; echo $((x))",
        "x='a[$(cmd)]'; echo $((1 + $x))",
        "x='a[$(cmd)]'; ((x++))",
        "x='a[$(cmd)]'; y=x; echo $((y))",
        "x='a[$(cmd)]'; y=$x; z=\"$y\"; echo $[z]",
        "x='a[$(cmd)]'; [[ $x -eq 1 ]]",
        "x='a[$(cmd)]'; [[ x -lt 1 ]]",
        "x='a[$(cmd)]'; echo ${a[x]}",
        "x='a[$(cmd)]'; a[x]=1",
        "x='a[$(cmd)]'; echo ${y:x}",
        "x='a[$(cmd)]'; echo ${y:0:x}",
        "x='$(cmd)'; echo ${x@P}",
        "x='a[$(cmd)]'; echo ${!x}",
        "x='a[$(cmd)]' bash -c 'echo $((x))'",
        "env x='a[$(cmd)]' bash -c 'echo $((x))'",
        "bash -c 'echo $(($1))' _ 'a[$(cmd)]'",
        "f() { echo $(($1)); }; f 'a[$(cmd)]'",
        "set -- 'a[$(cmd)]'; echo $(($1))",
        "for x in 'a[$(cmd)]'; do echo $((x)); done",
        "for x in *; do echo $((x)); done",
        "for ((i='a[$(cmd)]'; i<1; i++)); do echo; done",
        "a=('b[$(cmd)]'); echo $((a[0]))",
        "read x < f; echo $((x))",
        "x=$(cat f); echo $((x))",
        "x=$(printf '%s' q); [[ $x -gt 1 ]]",
        "declare -i n; n=$(cat f)",
        "export $(cat f)",
        "x='a[$(cmd)]'; a=([x]=1)",
        "x='$(cmd)'; set -- $x; echo \"${@@P}\"",
        "set -- 'a[$(cmd)]'; echo ${!1}",
        "x='a[$(cmd)]'; : {a[x]}>/dev/null",
        "x='a[$(cmd)]'; echo ${x:+$((x))}",
        "x='a[$(cmd)]'; [[ ! $x -gt 0 ]]",
        "RANDOM='a[$(cmd)]'",
        "x='a[$(cmd)]'; echo ${@:x}",
        "y=(1); x='a[$(cmd)]'; echo ${y[@]:0:x}",
        "f() { x=${1%z}; echo $((x)); }; f 'a[$(cmd)]'",
        "f() { printf -v \"$1\" x; }; f 'a[$(cmd)]'",
        "xargs bash -c 'echo $(($1))' _ < f",
        "wc() { cat f; }; x=$(wc -l); echo $((x))",
        "x=$(seq -f 'a[$(cmd)]%g' 1); echo $((x))",
        "x=$(wc -l 'a[$(cmd)]'); echo $((x))",
        "x=$(grep -c -H y 'a[$(cmd)]'); echo $((x))",
        "x=$(date '+a[$(cmd)]'); echo $((x))",
        "x=$(stat --printf='a[$(cmd)]' f); echo $((x))",
        "x='aZ$(cmd)]'; y=${x/Z/[}; echo $((y))",
    ]);
}

#[test]
fn a_substitution_that_the_grammar_does_not_see_asks() {
    held(&[
        "echo ${x:-`cmd`}",
        "echo \"${x:-`cmd`}\"",
        "echo ${x/1/`cmd`}",
        "cat <<EOF\n`cmd`\nEOF",
        "cat <<EOF\n$x `cmd`\nEOF",
    ]);
    free(&["cat <<'EOF'\n`cmd` $(cmd)\nEOF", "echo \"a\\`b\\`\"", "cat <<EOF\n$x \\`cmd\\`\nEOF"]);
}

#[test]
fn honest_arithmetic_does_not() {
    free(&[
        "echo $((1 + 2))",
        "i=0; while [ $i -lt 10 ]; do i=$((i+1)); done",
        "i=0; for f in a b; do ((i++)); done; echo $i",
        "for i in 1 2 3; do echo $((i * 2)); done",
        "for i in {1..5}; do echo $((i % 2)); done",
        "for i in $(seq 1 5); do [[ $i -gt 3 ]] && echo $i; done",
        "for ((i=0; i<10; i++)); do echo $i; done",
        "n=$(wc -l < f); echo $((n - 1))",
        "n=$(cat f | wc -l); if [[ $n -gt 5 ]]; then echo many; fi",
        "if [ $(wc -l < f) -gt 5 ]; then echo many; fi",
        "start=$(date +%s); make; echo $(( $(date +%s) - start ))",
        "a=(1 2 3); echo ${a[0]} ${a[@]} ${#a[@]}",
        "a=(x y); for i in 0 1; do echo ${a[$i]}; done",
        "declare -A m=([a]=1 [b]=2); for k in \"${!m[@]}\"; do echo ${m[$k]}; done",
        "x=abc; echo ${x:0:2} ${x%c} ${x/b/d} ${x^^} ${x:-y} ${#x}",
        "f() { local n=$1; echo $((n + 1)); }; f 3",
        "[[ $x == y* && -f a ]]",
        "[ -z \"$x\" ] && [ \"$a\" = b ]",
        "[ \"$(uname)\" = Linux ] && echo yes",
        "[[ $# -eq 0 ]] || echo $?",
        "while read -r line; do echo \"$line\"; done < f",
        "IFS=, read -r a b <<< x,y; echo $a",
        "export FOO=bar BAZ=$HOME/x",
        "declare -A m; m[key]=v; echo ${m[key]}",
        "set -euo pipefail; echo $((RANDOM % 10)) $((SECONDS + 1))",
        "printf -v x '%s' y",
        "unset x y",
        "sleep $((2 * 3))",
    ]);
}

#[test]
fn an_option_that_runs_something_is_judged_as_what_it_runs() {
    refused(&[
        "split --filter='git push' f",
        "split --filt 'git push' f",
        "split --f='git push' f",
        "capsh -- -c 'git push'",
        "git ls-remote --exec='git push' x",
        "tar -cf x --checkpoint=1 --checkpoint-action=exec='git push' f",
        "tar -cf x --checkpoint-act='exec=git push' f",
        "tar -xf x --to-command='git push'",
        "tar -cI 'git push' -f x f",
        "gcc -wrapper git,push a.c",
        "gcc-12 -wrapper sh,-c,'git push' a.c",
        "su -c 'git push'",
        "su -lc 'git push' me",
        "runuser -u me -c 'git push'",
        "sg group 'git push'",
        "sg group -c 'git push'",
        "script -qc 'git push' x",
        "flock f -c 'git push'",
        "flock f git push",
        "man -P 'git push' ls",
        "rsync -e 'git push' a b",
        "rsync -avze 'git push' a b",
        "ssh -o ProxyCommand='git push' h",
        "ssh -oProxyCommand='git push' h",
        "ssh h 'git push'",
        "git rebase -x 'git push' main",
        "git rebase --exec='git push' main",
        "git -C x rebase --exe 'git push' main",
        "git submodule foreach 'git push'",
        "git submodule foreach --recursive git push",
        "git bisect run git push",
        "git bisect run sh -c 'git push'",
        "git filter-branch --tree-filter 'git push' HEAD",
        "git difftool -x 'git push'",
        "git clone -u 'git push' x y",
        "git clone 'ext::git push' y",
        "git archive --remote=x --exec='git push' HEAD",
        "git -c core.sshCommand='git push' fetch",
        "git -c alias.x='!sh -c \"git push\"' x",
        "git config core.fsmonitor 'git push'",
        "GIT_EXTERNAL_DIFF='git push' git diff",
        "GIT_SSH_COMMAND='git push' git fetch",
        "export GIT_PAGER='git push'",
        "env PAGER='git push' man ls",
        "PS4='$(git push)' bash -xc :",
        "PROMPT_COMMAND='git push'",
        "LESSOPEN='|git push' less f",
        "go run -exec 'git push' .",
        "cargo --config 'target.x.runner=\"git push\"' run",
        "sort --compress-program='git push' f",
        "zip -T -TT 'git push' a b",
        "apt-get -o 'DPkg::Pre-Invoke::=git push' install x",
        "npm exec -c 'git push'",
        "npx -c 'git push'",
        "docker run x sh -c 'git push'",
        "some-wrapper --x bash -c 'git push'",
        "hyperfine 'git push'",
        "watch 'git push'",
        "watch -n 5 git push",
        "parallel 'git push' ::: a",
        "tmux new -d 'git push'",
        "systemd-run --user git push",
        "unshare -r sh -c 'git push'",
        "nsenter -t 1 git push",
        "chroot / git push",
        "taskset 1 sh -c 'git push'",
        "chrt 1 sh -c 'git push'",
        "setsid sh -c 'git push'",
        "strace -f sh -c 'git push'",
        "ionice -c 3 sh -c 'git push'",
        "/lib64/ld-linux-x86-64.so.2 /usr/bin/git push",
        "busybox sh -c 'git push'",
        "mapfile -C 'git push' -c 1 a < x",
        "compgen -C 'git push'",
        "trap 'git push' EXIT",
        "fish -c 'git push'",
        "zsh -c 'git push'",
        "make SHELL='git push'",
        "make CC='git push;'",
        "xargs -I{} sh -c 'git push' < f",
        "find . -name x -execdir sh -c 'git push' \\;",
        "echo x | entr -s 'git push'",
    ]);
}

#[test]
fn what_is_run_in_a_way_that_can_not_be_seen_asks() {
    held(&[
        "split --filter=\"$x\" f",
        "tar -cf x --to-command=\"$x\" f",
        "git rebase -x \"$x\" main",
        "git submodule foreach \"$x\"",
        "git -c core.pager=\"$x\" log",
        "git -c include.path=x log",
        "git --config-env=core.pager=X log",
        "GIT_CONFIG_COUNT=1 git log",
        "GIT_CONFIG_GLOBAL=x git log",
        "LD_PRELOAD=./x.so ls",
        "BASH_ENV=x bash -c :",
        "hash -p x git",
        "enable -f x y",
        "bind -x '\"a\": x'",
        "alias g=git",
        "fc -s",
        "crontab -",
        "make -f <(echo x)",
        "make -f - <<< x",
        "make --eval='$(shell x)'",
        "make X='$(shell x)'",
        "awk 'BEGIN{system(\"x\")}'",
        "sed 1e f",
        "sqlite3 a.db '.shell x'",
        "vim -c '!x' f",
        "ed -s f <<< '!x'",
        "gdb -ex 'shell x' a",
        "echo x | at now",
        "xargs -I% sh -c % < f",
        "xargs --replace=% sh -c % < f",
        "tar cIf x y f",
        "make -f /dev/fd/0 < f",
        "GNUMAKEFLAGS=--eval=x make",
        "BASH_ALIASES[q]=x; q",
        "BASH_CMDS[q]=x; q",
        "env -iS 'x y'",
        "env --sp='x y'",
        "bash /dev/stdin < f",
        "bash /proc/self/fd/0 < f",
        "source /dev/stdin < f",
        "su < f",
        "sudo -s < f",
        "script -q x < f",
        "chroot / < f",
        "unshare -r < f",
        "fish -c \"$x\"",
    ]);
}

#[test]
fn what_an_option_runs_is_covered_by_no_rule_about_the_program() {
    for (program, text) in [
        ("tar", "tar -cf x --checkpoint-action=exec=touch f"),
        ("tar", "tar -cf x --checkpoint-act='exec=sh x' f"),
        ("tar", "tar -xf x --use-comp='sh x'"),
        ("split", "split --filter='sh x' f"),
        ("gcc", "gcc -wrapper sh,x a.c"),
        ("git", "git rebase -x 'sh x' main"),
        ("git", "git submodule foreach 'sh x'"),
        ("git", "git bisect run x"),
        ("git", "git config core.pager 'sh x'"),
        ("git", "git clone ext::x y"),
        ("rsync", "rsync -e 'sh x' a b"),
        ("scp", "scp -S x a b:"),
        ("ssh", "ssh -F x h"),
        ("curl", "curl -K x"),
        ("man", "man -P x ls"),
        ("make", "make SHELL='sh x'"),
        ("make", "make --eval=x"),
        ("make", "make -f x"),
        ("go", "go test -exec x ./..."),
        ("cargo", "cargo --config build.rustc-wrapper=\"'x'\" build"),
        ("awk", "awk 'BEGIN{system(\"x\")}'"),
        ("sqlite3", "sqlite3 a '.shell x'"),
        ("fd", "fd -x rm"),
        ("rg", "rg --pre x a"),
        ("PAGER=x git", "PAGER=x git log"),
    ] {
        let set = rules(&[&format!("shell({program} *)")], &[], &[]);
        assert_eq!(shell(&set, text, BUILD), Ask, "{text}");
    }
    let named = rules(&["shell(git rebase -x *)"], &[], &[]);
    assert_eq!(shell(&named, "git rebase -x 'cargo test' main", BUILD), Allow, "a rule that names it");
    for (program, text) in [
        ("tar", "tar -czf x.tar.gz src"),
        ("tar", "tar --checkpoint=1 --checkpoint-action=dot -cf x a"),
        ("tar", "tar -I zstd -cf x a"),
        ("rsync", "rsync -av -e ssh a b:"),
        ("ssh", "ssh -o StrictHostKeyChecking=no h ls"),
        ("make", "make -j4 CC=gcc test"),
        ("git", "git config user.name me"),
        ("git", "git submodule update --init"),
        ("awk", "awk '{print $1}' f"),
        ("gcc", "gcc -Wall -o x a.c"),
        ("go", "go test ./..."),
        ("npm", "npm run build"),
    ] {
        let set = rules(&[&format!("shell({program} *)")], &[], &[]);
        assert_eq!(shell(&set, text, BUILD), Allow, "{text}");
    }
}

#[test]
fn honest_commands_are_not_asked_about() {
    free(&[
        "tar -czf x.tar.gz src && tar -I zstd -xf y.tar.zst",
        "tar -xzf a.tgz -C out --strip-components=1",
        "rsync -avz -e ssh src/ host:dst/",
        "ssh -o StrictHostKeyChecking=no host ls -la",
        "make -j8 CFLAGS='-O2 -g' test",
        "make PREFIX=$HOME/x VERSION=$(git describe) install",
        "make -f build.mk all",
        "GIT_PAGER=cat git log --oneline",
        "GIT_EDITOR=true git rebase --continue",
        "GIT_SEQUENCE_EDITOR=: git rebase -i main",
        "PAGER=cat man ls",
        "git -c user.name=x -c user.email=y commit -m 'a b'",
        "git -c core.quotepath=false status",
        "git -c color.ui=always status",
        "git submodule update --init --recursive",
        "git bisect start && git bisect good v1",
        "git config --get user.email",
        "git config user.email a@b",
        "gcc -O2 -Wall -o x a.c && ./x",
        "cargo test --workspace && cargo run --release -- --config x.toml",
        "cargo --config net.offline=true build",
        "go test ./... -run X",
        "npm exec eslint . && npx tsc --noEmit",
        "docker run --rm -v $PWD:/x image make test",
        "docker exec -it c bash",
        "sudo apt-get -o Dpkg::Options::=--force-confold install -y x",
        "timeout 60 pytest -x",
        "flock /tmp/l make",
        "watch -n 1 ls -la",
        "trap 'rm -f x' EXIT",
        "trap - EXIT",
        "NODE_OPTIONS=--max-old-space-size=4096 npm run build",
        "ENV=production npm start",
        "PS4='+ $LINENO: ' bash -x script.sh",
        "export PATH=$HOME/.cargo/bin:$PATH",
        "LD_LIBRARY_PATH=./lib ./x",
        "complete -p",
        "hash -r",
        "crontab -l",
        "which bash && man bash",
        "seq 3 | xargs -I{} echo item {}",
        "git blame -L 10,20 src/a.rs",
        "awk -F: '{print $1}' f | sort | uniq -c",
        "sed -i 's/foo/bar/g' a.rs",
        "sqlite3 x.db 'select count(*) from t'",
        "curl -fsSL -o out.json https://example.org/x",
        "git status && git log --oneline -5 && git diff --stat",
        "git add -A && git commit -m 'push it: $(x)' && git checkout main",
        "git stash && git pull --rebase && git stash pop",
    ]);
}

#[test]
fn git_does_not_read_past_a_rule_about_files() {
    let set = rules(&["shell"], &[], &["view(secret.txt)", "view(keys/**)"]);
    for text in [
        "git show HEAD:secret.txt",
        "git show HEAD:./secret.txt",
        "git show :secret.txt",
        "git cat-file -p HEAD~3:secret.txt",
        "git diff -- secret.txt",
        "git log -p -- keys/a",
        "git blame secret.txt",
        "git log -L1,5:secret.txt",
        "cd sub && git show HEAD:secret.txt",
        "git show HEAD:keys/a",
        "git diff --no-index /dev/null secret.txt",
    ] {
        assert_eq!(shell(&set, text, ALL), Deny, "{text}");
    }
    for text in [
        "git grep x",
        "git log -p",
        "git log --patch -3",
        "git show",
        "git show HEAD~2",
        "git diff",
        "git diff main...topic",
        "git stash show -p",
        "git archive HEAD | tar -x -C x",
        "git show HEAD:$f",
        "git diff -- $f",
        "git cat-file -p abc123",
        "git cat-file --batch < list",
        "git diff -- .",
        "git diff -- ':(top)'",
        "git worktree add ../x",
        "git clone . ../x",
        "git mine",
        "git -C . show",
    ] {
        assert_eq!(shell(&set, text, ALL), Ask, "{text}");
        assert_eq!(shell(&rules(&["shell"], &[], &["view(/elsewhere/**)"]), text, ALL), Allow, "{text}, of elsewhere");
    }
    for text in [
        "git status",
        "git log --oneline",
        "git diff --stat",
        "git diff --name-only main",
        "git diff -- src/a.rs",
        "git log -p -- src",
        "git show HEAD:src/a.rs",
        "git blame src/a.rs",
        "git add -A; git commit -m x",
        "git push",
        "git fetch origin && git rebase origin/main",
        "git lfs pull",
    ] {
        assert_eq!(shell(&set, text, ALL), Allow, "{text}");
    }
    let edits = rules(&["shell"], &[], &["edit(kept/**)"]);
    for (text, wanted) in [("git checkout HEAD~1 -- kept/a", Deny), ("git restore kept/a", Deny), ("git diff", Allow)] {
        assert_eq!(shell(&edits, text, ALL), wanted, "{text}");
    }
}

#[test]
fn an_alias_of_git_may_be_what_is_denied() {
    let set = rules(&["shell"], &[], &["shell(git push *)"]);
    for text in ["git up", "git -C x publish", "git p origin"] {
        assert_eq!(shell(&set, text, ALL), Ask, "{text}");
    }
    for text in ["git pull", "git lfs fetch", "git --version", "make up"] {
        assert_eq!(shell(&set, text, ALL), Allow, "{text}");
    }
    assert_eq!(shell(&rules(&["shell"], &[], &["shell(rm *)"]), "git up", ALL), Allow);
}
