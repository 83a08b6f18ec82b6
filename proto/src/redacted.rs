//! `Debug` of the messages that carry secrets or bulk: names and sizes, never values.

use std::fmt;

use crate::v1::{ClientContext, ListModelsRequest, Media};

impl fmt::Debug for ClientContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientContext")
            .field("cwd", &self.cwd)
            .field("env", &format_args!("<{} variables>", self.env.len()))
            .field("umask", &self.umask)
            .field("interactive", &self.interactive)
            .field("client", &self.client)
            .finish()
    }
}

impl fmt::Debug for ListModelsRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListModelsRequest")
            .field("page_size", &self.page_size)
            .field("page_token", &self.page_token)
            .field("provider", &self.provider)
            .field("env", &format_args!("<{} variables>", self.env.len()))
            .finish()
    }
}

impl fmt::Debug for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Media")
            .field("media_type", &self.media_type)
            .field("data", &format_args!("<{} bytes>", self.data.len()))
            .field("name", &self.name)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::v1::{ClientContext, ListModelsRequest, Media, StartRunRequest};

    #[test]
    fn secrets_are_not_shown() {
        let env = std::collections::BTreeMap::from([("OPENAI_API_KEY".to_owned(), "sk-hidden".to_owned())]);
        let start = StartRunRequest {
            context: Some(ClientContext { cwd: "/w".to_owned(), env: env.clone(), ..Default::default() }),
            ..Default::default()
        };
        let list = ListModelsRequest { env, ..Default::default() };
        let media = Media { data: b"sk-hidden".to_vec(), ..Default::default() };
        for text in [format!("{start:?}"), format!("{list:?}"), format!("{media:?}")] {
            assert!(!text.contains("sk-hidden") && !text.contains("115, 107"), "{text}");
        }
        assert!(format!("{start:?}").contains("<1 variables>"));
    }
}
