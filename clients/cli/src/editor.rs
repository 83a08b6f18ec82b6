//! The user's own editor, for a text that is worked on.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use mcode_client::{ClientError, ErrorKind};

/// Most bytes of a text that comes from the editor, as of one that is piped in.
const TEXT_BYTES_MAX: u64 = crate::stdin::STDIN_BYTES_MAX as u64;

/// Where nobody says which editor.
const FALLBACK: &str = if cfg!(windows) { "notepad" } else { "vi" };

/// A text that was worked on.
#[derive(Debug)]
pub(crate) struct Edited {
    /// The text, without blanks at its ends.
    pub(crate) text: String,
    /// The file that holds it, readable by the user alone.
    pub(crate) file: PathBuf,
}

/// Opens a text in the editor that `VISUAL` or `EDITOR` names, and waits until that has ended. Blocking.
pub(crate) fn edit(text: &str) -> Result<Edited, ClientError> {
    let named = |name: &str| mcode_env::process::var(name).filter(|text| !text.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| FALLBACK.to_owned());
    edit_with(&editor, text)
}

fn edit_with(editor: &str, text: &str) -> Result<Edited, ClientError> {
    let file = write(text).map_err(|error| unusable(&format!("no file for the editor can be made: {error}")))?;
    let edited = ended(editor, &file).and_then(|()| {
        mcode_env::files::read_text_bounded(&file, TEXT_BYTES_MAX)
            .map_err(|error| unusable(&format!("what the editor wrote to {} can not be read: {error}", file.display())))
    });
    let text = match edited {
        // What was written stays, since it is the user's work.
        Err(error) => return Err(error.hint(format!("what you wrote is in {}", file.display()))),
        Ok(text) => text.trim().to_owned(),
    };
    if text.is_empty() {
        forget(&file);
        return Err(ClientError::usage("nothing was sent: the text is empty"));
    }
    Ok(Edited { text, file })
}

/// Takes away a file that was worked on.
pub(crate) fn forget(file: &Path) {
    // It lies in the folder for temporary files: at worst it goes with the others there.
    drop(std::fs::remove_file(file));
}

fn write(text: &str) -> io::Result<PathBuf> {
    let mut file = tempfile::Builder::new().prefix("mcode-").suffix(".md").tempfile()?;
    file.write_all(text.as_bytes())?;
    let (_, path) = file.keep().map_err(|error| error.error)?;
    Ok(path)
}

fn ended(editor: &str, file: &Path) -> Result<(), ClientError> {
    let status = run(editor, file).map_err(|error| unusable(&format!("'{editor}' can not be run: {error}")))?;
    if status.success() { Ok(()) } else { Err(unusable(&format!("nothing was sent: '{editor}' ended with {status}"))) }
}

/// `EDITOR` is a command as the shell reads it, such as `code --wait`.
#[cfg(unix)]
#[allow(clippy::disallowed_methods, reason = "the user's own editor, in the client")]
fn run(editor: &str, file: &Path) -> io::Result<ExitStatus> {
    Command::new("sh").arg("-c").arg(format!("{editor} \"$@\"")).arg(editor).arg(file).status()
}

#[cfg(not(unix))]
#[allow(clippy::disallowed_methods, reason = "the user's own editor, in the client")]
fn run(editor: &str, file: &Path) -> io::Result<ExitStatus> {
    let mut words = editor.split_whitespace();
    Command::new(words.next().unwrap_or(FALLBACK)).args(words).arg(file).status()
}

fn unusable(message: &str) -> ClientError {
    ClientError::new(ErrorKind::User, "EDITOR_FAILED", message)
        .hint("give the text as an argument, or name an editor in EDITOR")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_editor_is_a_command_with_words_of_its_own() {
        let edited = edit_with("sed -i s/old/new/", "the old text\n").unwrap();
        assert_eq!(edited.text, "the new text");
        forget(&edited.file);
        assert!(!edited.file.exists());
    }

    #[test]
    fn an_empty_text_and_a_failed_editor_send_nothing() {
        let empty = edit_with("sed -i d", "text").unwrap_err();
        assert_eq!((empty.exit_code(), empty.message.as_str()), (2, "nothing was sent: the text is empty"));
        let failed = edit_with("false", "text").unwrap_err();
        assert!(failed.message.contains("'false' ended with"), "{failed:?}");
        let kept = failed.hint.unwrap();
        let file = Path::new(kept.strip_prefix("what you wrote is in ").unwrap());
        assert_eq!(std::fs::read_to_string(file).unwrap(), "text");
        forget(file);
        assert!(edit_with("no-such-editor-anywhere", "text").is_err());
    }
}
