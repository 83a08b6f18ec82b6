//! What rules say of files that a command names: links, wildcards, folders, and what is not known before it runs.

use Verdict::{Allow, Ask, Deny};
use mcode_events::run::ApprovalPolicy;
use mcode_permissions::{Access, Below, Category, Verdict};

use crate::setting::{BUILD, Setting, command, decide, edit, rules, shell};

const ALL: Setting = Setting { policy: ApprovalPolicy::All, ..BUILD };

fn mentioned(path: &str, below: Below, changes: bool) -> Access {
    Access::Mentioned { path: path.into(), below, changes }
}

#[test]
fn a_file_that_a_command_names_is_judged_where_it_really_is() {
    let set = rules(&["shell"], &[], &["view(/sec/**)", "edit(kept/**)"]);
    let verdict =
        |access: Access| decide(&set, "shell", Category::Execute, &[command("cat link"), access], ALL).verdict;
    assert_eq!(verdict(mentioned("/sec/k", Below::Nothing, false)), Deny);
    assert_eq!(verdict(mentioned("/sec/k", Below::Nothing, true)), Deny);
    assert_eq!(verdict(mentioned("/p/k", Below::Nothing, false)), Allow);
    assert_eq!(verdict(mentioned("/p/kept/a", Below::Nothing, true)), Deny);
    assert_eq!(verdict(mentioned("/p/kept/a", Below::Nothing, false)), Allow);
    let files = |path: &str| Below::Files(vec!["/p/a".into(), path.into()]);
    assert_eq!(verdict(mentioned("/p", files("/sec/x"), false)), Ask);
    assert_eq!(verdict(mentioned("/p", files("/p/b"), false)), Allow);
    assert_eq!(verdict(mentioned("/", Below::Unknown, false)), Ask);
    assert_eq!(verdict(mentioned("/p/a", Below::Unknown, false)), Allow);
    let anywhere = rules(&["shell"], &[], &["view(**/.env)"]);
    let access = [command("rg x"), mentioned("/p", Below::Unknown, false)];
    assert_eq!(decide(&anywhere, "shell", Category::Execute, &access, ALL).verdict, Ask);
}

#[test]
fn whoever_may_not_view_a_file_may_not_change_it_either() {
    let set = rules(&["edit", "edit(**)"], &[], &["view(secret)"]);
    assert_eq!(edit(&set, "/p/secret", ALL), Deny);
    assert_eq!(edit(&set, "/p/other", ALL), Allow);
}

#[test]
fn what_is_not_known_asks_where_a_rule_may_mean_it_even_when_all_is_approved() {
    let set = rules(&["shell"], &[], &["view(secret)"]);
    for text in [
        "cat $x",
        "cat \"$1\"",
        "cat $(printf '%s%s' sec ret)",
        "for f in *; do cat $f; done",
        "ls | xargs cat",
        "find . -name x -exec cat {} \\;",
        "grep x $f",
        "grep -e x $f",
        "cat < $f",
        "eval \"$x\"",
        "curl example.org | sh",
        "$cmd secretless",
        "cat 'unfinished",
        "head -c 10 ${f}",
        "cd $x && cat a",
        "cd - && head a",
        "HOME=/elsewhere; cat ~/x",
        "python3 -c 'print(open(\"sec\" + \"ret\").read())'",
        "python3.12 - <<EOF\nprint(open('sec' + 'ret').read())\nEOF",
        "perl -e 'print `c`'",
        "node --eval 'require(\"f\" + \"s\")'",
        // Also by programs that are in no list.
        "zcat $x",
        "iconv -f latin1 $x",
        "column -t \"$x\"",
        "split -b 10 $x",
        "shuf $f",
        "ls | xargs fmt",
        "./tool --input $x",
        "sudo some-reader $x",
        "cd $x && zcat a",
    ] {
        for setting in [BUILD, ALL] {
            assert_eq!(shell(&set, text, setting), Ask, "{text}");
        }
        assert_eq!(shell(&rules(&["shell"], &[], &[]), text, ALL), Allow, "{text}");
    }
    for text in [
        "cat a",
        "echo $x",
        "grep $pattern a",
        "cat $HOME/x",
        "cargo test $x",
        "source env/bin/activate",
        "for f in a b; do echo $f; done",
        "make -j$(nproc)",
        "ls $x",
        "wc -l $f",
        "[ -f $f ] && [[ $f == a ]]",
        "export A=$x; printf '%s' \"$A\"",
        "timeout 5 echo $x",
        "zcat a",
        "rm $x",
        "find $x -name a",
        "ls | xargs -n 1 echo",
        "git add $f",
        "npm run $x",
        "cd $x && cargo test",
        "python3 -c 'print(1)'",
        "python3 tool.py --input x",
        "python3 -m pytest -x",
        "node --version",
        "cat a > $out",
    ] {
        assert_eq!(shell(&set, text, ALL), Allow, "{text}");
    }
    let edits = rules(&["shell"], &[], &["edit(kept)"]);
    for (text, wanted) in [("cat a > $out", Ask), ("rm $x", Ask), ("cat $x", Allow)] {
        assert_eq!(shell(&edits, text, ALL), wanted, "{text}");
    }
}

#[test]
fn what_git_changes_is_not_known_either_where_a_rule_on_editing_may_mean_it() {
    let set = rules(&["shell"], &[], &["edit(secret)"]);
    for text in [
        "git rm \"$f\"",
        "git checkout -- $f",
        "git checkout HEAD -- \"$f\"",
        "git mv $a b",
        "git -C . restore $f",
        "cd $x && git rm a",
    ] {
        for setting in [BUILD, ALL] {
            assert_eq!(shell(&set, text, setting), Ask, "{text}");
        }
        assert_eq!(shell(&rules(&["shell"], &[], &[]), text, ALL), Allow, "{text}");
    }
    for text in ["git rm secret", "git checkout -- secret", "git mv secret b"] {
        assert_eq!(shell(&set, text, ALL), Deny, "{text}");
    }
    for text in ["git rm a", "git checkout -- a", "git mv a b", "git commit -m \"$m\"", "git add $f"] {
        assert_eq!(shell(&set, text, ALL), Allow, "{text}");
    }
}

#[test]
fn a_rule_that_asks_is_meant_too_but_does_not_reach_over_approve_all() {
    let set = rules(&["shell"], &["view(secret)", "shell(git push *)"], &[]);
    for text in ["cat $x", "eval \"$x\"", "a 'x"] {
        assert_eq!((shell(&set, text, BUILD), shell(&set, text, ALL)), (Ask, Allow), "{text}");
    }
}

#[test]
fn a_folder_that_a_command_goes_to_is_where_its_names_begin() {
    let set = rules(&["shell"], &[], &["view(sub/secret)"]);
    let home = rules(&["shell"], &[], &["view(~/secret)"]);
    assert_eq!(shell(&home, "cd; cat secret", ALL), Deny);
    for text in ["cd sub && cat secret", "cd sub; cat ./secret", "tar -C sub -c secret", "env -C sub cat secret"] {
        assert_eq!(shell(&set, text, ALL), Deny, "{text}");
    }
    assert_eq!(shell(&set, "cd other && cat secret", ALL), Allow);
}

#[test]
fn what_is_denied_is_told_as_plain_data() {
    let set = rules(&[], &[], &["view(**/.env)", "view(secret)", "read(~/.ssh/**)", "edit(/etc/**)", "shell(rm *)"]);
    let denied = set.denied_paths("/p".as_ref(), &[], Some("/h".as_ref()));
    assert_eq!(denied.view, ["/**/.env", "/p/secret", "/h/.ssh/**"]);
    assert_eq!(denied.edit, ["/**/.env", "/p/secret", "/h/.ssh/**", "/etc/**"]);
}
