//! The providers, the packs and the catalogue as people see them.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use mcode_models::{CatalogueState, FoundServer, ListedProvider, ModelDirectory, ModelError, Pack, Refreshed, Wire};

use super::Registry;
use super::login::Stored;
use super::seat::Seat;
use crate::auth::data;
use crate::http;
use crate::known::{self, KNOWN};
use crate::scan;

impl ModelDirectory for Registry {
    fn catalogue(&self) -> CatalogueState {
        self.catalogue_state()
    }

    fn refresh_catalogue<'a>(
        &'a self,
        from: &'a str,
        env: &'a BTreeMap<String, String>,
    ) -> BoxFuture<'a, Result<Refreshed, ModelError>> {
        Box::pin(self.renew(from, env))
    }

    fn providers(&self, env: &BTreeMap<String, String>) -> Vec<ListedProvider> {
        let config = (self.config)();
        let catalogue = self.catalogue();
        let mut models: BTreeMap<&str, usize> = BTreeMap::new();
        for info in catalogue.models() {
            *models.entry(info.id.split('/').next().unwrap_or_default()).or_default() += 1;
        }
        let own = config.providers.keys().map(String::as_str).filter(|name| known::find(name).is_none());
        let names = KNOWN.iter().map(|known| known.name).chain(own);
        let stored = Stored::now(self.auth.as_ref());
        let listed = names.map(|name| {
            let entry = config.providers.get(name);
            let undeclared = |id: &str| catalogue.models().iter().all(|info| info.id != format!("{name}/{id}"));
            let declared = entry.map_or(0, |entry| entry.models.iter().filter(|model| undeclared(&model.id)).count());
            let mut row = ListedProvider {
                name: name.to_owned(),
                wire: known::find(name).map_or_else(String::new, |known| known.wire.as_str().to_owned()),
                base_url: String::new(),
                configured: entry.is_some(),
                known: known::find(name).is_some(),
                usable: false,
                key_source: String::new(),
                models: models.get(name).copied().unwrap_or(0) + declared,
            };
            match Seat::find(&config, &stored, name, "", env) {
                Ok(seat) => {
                    row.wire = seat.wire.as_str().to_owned();
                    row.base_url.clone_from(&seat.base_url);
                    match seat.key(&stored, env) {
                        Ok(key) => (row.usable, row.key_source) = (true, key.source),
                        Err(error) => row.key_source = error.hint,
                    }
                }
                Err(error) => row.key_source = error.hint,
            }
            row
        });
        listed.collect()
    }

    fn reserved(&self, name: &str) -> Option<String> {
        if known::find(name).is_some_and(|known| known.wire == Wire::Scripted) {
            return Some(format!("'{name}' is the scripted model that is part of mcode"));
        }
        let meant = data::provider_of(name);
        (meant != name).then(|| format!("'{name}' is another word for {meant} where one logs in"))
    }

    fn packs(&self, env: &BTreeMap<String, String>) -> Vec<Pack> {
        self.all_packs(env)
    }

    fn is_usable(&self, model: &str, env: &BTreeMap<String, String>) -> bool {
        super::roles::is_usable(&(self.config)(), &Stored::now(self.auth.as_ref()), model, env)
    }

    fn scan<'a>(&'a self, env: &'a BTreeMap<String, String>) -> BoxFuture<'a, Vec<FoundServer>> {
        let config = (self.config)();
        let stored = Stored::now(self.auth.as_ref());
        // A server that was given another place on this machine is looked for there.
        let servers = scan::SERVERS.iter().filter_map(|name| {
            let usual = known::find(name)?.base_url;
            let set = Seat::find(&config, &stored, name, "", env).map(|seat| seat.base_url).ok();
            let here =
                |url: &String| http::base(url, "").is_ok_and(|url| url.host_str().is_some_and(http::is_loopback_name));
            Some((*name, set.filter(here).unwrap_or_else(|| usual.to_owned())))
        });
        let servers: Vec<(&'static str, String)> = servers.collect();
        Box::pin(async move { scan::scan(&self.clients, servers).await })
    }
}
