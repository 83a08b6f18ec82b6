//! What the vault keeps, and how it fails.

use super::*;

fn login(access: &str, refresh: Option<&str>) -> Login {
    Login {
        about: About {
            kind: Kind::Login,
            account: "a@b.c".into(),
            account_id: None,
            expires_at_ms: Some(5),
            saved_at_ms: 1,
            renewable: refresh.is_some(),
            address: None,
            stamp: String::new(),
            in_keyring: false,
        },
        tokens: Tokens { access: access.into(), refresh: refresh.map(str::to_owned) },
    }
}

fn vault() -> (tempfile::TempDir, Vault) {
    let folder = tempfile::tempdir().unwrap();
    let vault = Vault::new(folder.path().join("data"), false);
    (folder, vault)
}

#[tokio::test]
async fn logins_of_several_providers_are_kept_and_forgotten() {
    let (folder, vault) = vault();
    assert!(vault.all().unwrap().is_empty());
    assert!(vault.load("a").await.unwrap().is_none());
    let first = vault.save("a", &login("A1", Some("R1"))).await.unwrap();
    vault.save("b", &login("B1", None)).await.unwrap();
    let second = vault.save("a", &login("A2", Some("R2"))).await.unwrap();
    assert_ne!(first.stamp, second.stamp);
    // Another process reads the same.
    let other = Vault::new(folder.path().join("data"), false);
    assert_eq!(other.load("a").await.unwrap().unwrap().tokens.refresh.as_deref(), Some("R2"));
    assert_eq!(other.all().unwrap().keys().collect::<Vec<_>>(), ["a", "b"]);
    assert!(other.remove("a").await.unwrap() && !other.remove("a").await.unwrap());
    assert!(vault.load("a").await.unwrap().is_none(), "a change of another process is seen");
    assert_eq!(vault.load("b").await.unwrap().unwrap().tokens.access, "B1");
}

#[cfg(unix)]
#[tokio::test]
async fn the_file_is_its_users_alone_whatever_it_was_before() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, vault) = vault();
    vault.save("a", &login("A1", None)).await.unwrap();
    let mode = || vault.file().metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    std::fs::set_permissions(vault.file(), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(is_open_to_others(&vault.file()));
    vault.save("a", &login("A2", None)).await.unwrap();
    assert_eq!(mode(), 0o600);
    assert!(!is_open_to_others(&vault.file()));
}

#[tokio::test]
async fn a_damaged_file_is_named_and_left_as_it_is() {
    let (_folder, vault) = vault();
    vault.save("a", &login("A1", None)).await.unwrap();
    for (text, words) in [
        ("{\"version\":1,\"logins\":{\"a\":{\"tokens\":\"SECRET", "not JSON"),
        ("[]", "not a list of logins"),
        ("{\"version\":2,\"keyring_id\":\"x\",\"logins\":{}}", "newer version"),
        (&" ".repeat(usize::try_from(content::FILE_BYTES_MAX).unwrap() + 1), "larger"),
    ] {
        std::fs::write(vault.file(), text).unwrap();
        let refusals = [
            vault.all().unwrap_err(),
            vault.load("a").await.unwrap_err(),
            vault.save("a", &login("A3", None)).await.unwrap_err(),
            vault.remove("a").await.unwrap_err(),
        ];
        for error in refusals {
            let told = error.to_string();
            assert!(told.contains(words) && told.contains(FILE) && !told.contains("SECRET"), "{told}");
            assert!(error.hint().contains(FILE), "{}", error.hint());
        }
        assert_eq!(std::fs::read_to_string(vault.file()).unwrap(), text);
    }
}

#[tokio::test]
async fn what_is_no_file_is_named_and_left_as_it_is() {
    let (_folder, vault) = vault();
    vault.save("a", &login("A1", None)).await.unwrap();
    std::fs::remove_file(vault.file()).unwrap();
    std::fs::create_dir(vault.file()).unwrap();
    for error in [vault.all().unwrap_err(), vault.save("a", &login("A2", None)).await.unwrap_err()] {
        assert!(error.to_string().contains("it is a folder") && error.hint().contains("move it away"), "{error}");
    }
    assert!(vault.file().is_dir());
}

#[tokio::test]
async fn what_could_not_be_read_again_is_not_written() {
    let (_folder, vault) = vault();
    vault.save("a", &login("A1", None)).await.unwrap();
    let huge = "x".repeat(usize::try_from(content::FILE_BYTES_MAX).unwrap());
    let error = vault.save("b", &login(&huge, None)).await.unwrap_err();
    assert!(error.to_string().contains(FILE) && error.hint().contains("mcode logout"), "{error}");
    assert_eq!(vault.load("a").await.unwrap().unwrap().tokens.access, "A1");
}

#[test]
fn secrets_do_not_show() {
    let shown = format!("{:?}", login("ACCESS", Some("REFRESH")));
    assert!(!shown.contains("ACCESS") && !shown.contains("REFRESH") && shown.contains("a@b.c"), "{shown}");
}

#[test]
fn names_of_locks_are_names_of_files() {
    let vault = Vault::new("/d".into(), false);
    assert_eq!(vault.lock_file("github-copilot"), Path::new("/d/auth-github-copilot.lock"));
    assert_eq!(vault.lock_file("../x"), Path::new("/d/auth-_2e_2e_2fx.lock"));
}
