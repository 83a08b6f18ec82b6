//! What is known of programs, as lists: a file for each question that is asked about them.
//!
//! | question | file |
//! |---|---|
//! | does it run its words as a command? | `wrappers` |
//! | does it run the text of an option, an operand or a variable? | `running` |
//! | does it run code or commands that it is given as text? | `code` |
//! | does it change the files it names, or show what is in them? | `files` |
//! | does it only look, or run nothing at least? | `harmless` |
//!
//! What `git` does is told by its subcommands: see `git`. A name is in at most one list for each question.

pub(crate) mod code;
pub(crate) mod files;
pub(crate) mod harmless;
pub(crate) mod running;
pub(crate) mod wrappers;

#[cfg(test)]
mod tests {
    use super::*;

    fn once(question: &str, lists: &[&[&str]]) {
        let mut names: Vec<&str> = lists.concat();
        let count = names.len();
        names.sort_unstable();
        let doubled: Vec<&str> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        assert_eq!(doubled, Vec::<&str>::new(), "{question}");
        assert!(count > 0, "{question}");
    }

    #[test]
    fn a_program_is_in_one_list_for_each_question() {
        let wrappers: Vec<&str> = wrappers::WRAPPERS.iter().map(|wrapper| wrapper.name).collect();
        once("what it runs", &[&wrappers, &wrappers::SHELLS, &wrappers::SOURCING]);
        once("commands as text", &[&code::INTERPRETERS, &code::AWKS, &code::SEDS, &code::EDITORS, &code::EVALUATORS]);
        let little: Vec<&str> = code::LITTLE.iter().flat_map(|little| little.programs).copied().collect();
        once("capable code", &[&code::INTERPRETERS, &code::AWKS, &code::SEDS, &code::EDITORS, &little]);
        once("what it shows", &[&files::PATTERN_FIRST, &files::SHOWING_NOTHING, &files::BUILDING]);
        once("what it changes", &[&files::CHANGING]);
        once("whether it looks or runs nothing", &[&harmless::HARMLESS, &harmless::RUNS_NOTHING]);
        let fed: Vec<&str> = running::FED.iter().map(|(program, _)| *program).collect();
        once("what it is fed", &[&fed]);
        once("variables", &[&running::VARIABLES.iter().map(|(name, _)| *name).collect::<Vec<_>>()]);
    }

    #[test]
    fn a_program_that_runs_others_is_not_said_to_run_nothing() {
        let nothing = || harmless::HARMLESS.iter().chain(&harmless::RUNS_NOTHING);
        for name in nothing() {
            assert!(!wrappers::WRAPPERS.iter().any(|wrapper| wrapper.name == *name), "{name}");
            assert!(!wrappers::SHELLS.contains(name) && !code::INTERPRETERS.contains(name), "{name}");
        }
    }
}
