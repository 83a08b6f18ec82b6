//! Which model has which role (pure).
//!
//! A pack names a model for each role. Built-in packs are made of what a client can reach: a strong model of a provider
//! for what matters, its cheapest for what is done often. Who wishes what is weighed in [`choose`]: the run, the thread,
//! the settings, the pack, and what can be reached at all.

use std::collections::BTreeMap;
use std::fmt;

use mcode_events::run::ThinkingLevel;

use crate::catalog::{ModelInfo, ThinkingForm};

/// The least window of a model that gets a role in a built-in pack, in tokens.
const CONTEXT_MIN: u32 = 64_000;
/// A request as they often are, to compare prices: so many parts of input to one of output.
const INPUT_TO_OUTPUT: f64 = 4.0;

/// What a model is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Doing the work.
    Build,
    /// Planning it.
    Plan,
    /// Answering questions about a project.
    Explore,
    /// Titles and other small things.
    Small,
    /// Ruling whether a goal is reached.
    Judge,
    /// Noting what happened.
    Observer,
    /// Rewriting the notes.
    Reflector,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Build, Self::Plan, Self::Explore, Self::Small, Self::Judge, Self::Observer, Self::Reflector];

    /// The word for it, in settings and packs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Plan => "plan",
            Self::Explore => "explore",
            Self::Small => "small",
            Self::Judge => "judge",
            Self::Observer => "observer",
            Self::Reflector => "reflector",
        }
    }

    /// The role of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }

    /// The role of whoever works in a mode.
    #[must_use]
    pub fn of_mode(mode: &str) -> Self {
        match mode {
            "plan" => Self::Plan,
            "explore" => Self::Explore,
            _ => Self::Build,
        }
    }

    /// Whether the user speaks with it. The others work beside the conversation, and do with whatever can be reached.
    #[must_use]
    pub const fn speaks(self) -> bool {
        matches!(self, Self::Build | Self::Plan | Self::Explore)
    }

    /// Whose model it has in a pack that names none for it, the first that is named.
    const fn stand_ins(self) -> &'static [Self] {
        match self {
            Self::Build => &[],
            Self::Plan | Self::Explore | Self::Small | Self::Judge => &[Self::Build],
            Self::Observer | Self::Reflector => &[Self::Small, Self::Build],
        }
    }

    /// Whether it needs the best that there is.
    const fn is_demanding(self) -> bool {
        matches!(self, Self::Build | Self::Plan | Self::Judge)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Models by role.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pack {
    /// What it is called.
    pub name: String,
    /// Whether it was made here, and not by the user.
    pub built_in: bool,
    /// `provider/model` by role.
    pub models: BTreeMap<Role, String>,
    /// How much the model thinks, by role.
    pub thinking: BTreeMap<Role, ThinkingLevel>,
}

impl Pack {
    /// The model of a role, or of the role that stands in for it.
    #[must_use]
    pub fn model(&self, role: Role) -> Option<&str> {
        let roles = std::iter::once(&role).chain(role.stand_ins());
        roles.into_iter().find_map(|role| self.models.get(role)).map(String::as_str)
    }

    /// A pack of one provider's models. `preferred` is its model for the work, if one is known; of the others the
    /// dearest that thinks is taken, since it is the best. `None` when there is nothing to choose from.
    #[must_use]
    pub fn of_provider(name: &str, preferred: Option<&str>, models: &[ModelInfo]) -> Option<Self> {
        let fit = || models.iter().filter(|info| info.tools && info.context_tokens >= CONTEXT_MIN);
        let strong = match preferred {
            Some(model) => model.to_owned(),
            None => {
                let thinks = |info: &ModelInfo| info.thinking != ThinkingForm::None;
                let best = fit().max_by(|a, b| thinks(a).cmp(&thinks(b)).then(price(a).total_cmp(&price(b))));
                best.or(models.first())?.id.clone()
            }
        };
        // What has no price is not known to be cheap.
        let cheap = fit().filter(|info| price(info) > 0.0).min_by(|a, b| price(a).total_cmp(&price(b)));
        let ceiling = models.iter().find(|info| info.id == strong).map(price).filter(|price| *price > 0.0);
        let cheap = cheap.filter(|info| ceiling.is_none_or(|most| price(info) < most));
        let cheap = cheap.map_or_else(|| strong.clone(), |info| info.id.clone());
        let of = |role: Role| if role.is_demanding() { strong.clone() } else { cheap.clone() };
        Some(Self {
            name: name.to_owned(),
            built_in: true,
            models: Role::ALL.into_iter().map(|role| (role, of(role))).collect(),
            thinking: BTreeMap::new(),
        })
    }
}

/// US dollars for a million tokens of a usual request; zero when the price is not known.
fn price(info: &ModelInfo) -> f64 {
    info.pricing.map_or(0.0, |price| (price.input * INPUT_TO_OUTPUT + price.output) / (INPUT_TO_OUTPUT + 1.0))
}

/// Why a model has a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The run names it.
    Run,
    /// The thread was given it for this mode.
    Thread,
    /// This setting of the configuration names it.
    Setting(&'static str),
    /// The chosen pack of this name does.
    Pack(String),
    /// The thread worked with it last.
    Last,
    /// It is what can be reached.
    Reachable,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run => f.write_str("named for this run"),
            Self::Thread => f.write_str("chosen in this thread"),
            Self::Setting(key) => write!(f, "{key} in config.toml"),
            Self::Pack(name) => write!(f, "pack {name}"),
            Self::Last => f.write_str("the thread's last"),
            Self::Reachable => f.write_str("what can be reached"),
        }
    }
}

/// A model for a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// `provider/model`.
    pub model: String,
    /// How much it thinks, where a pack says so.
    pub thinking: Option<ThinkingLevel>,
    /// Why this one.
    pub reason: Reason,
}

/// Who asks for a model: what the run, its thread and its project wish.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes<'a> {
    /// What the run was given.
    pub run: Option<&'a str>,
    /// What the thread was given for this role before.
    pub thread: Option<&'a str>,
    /// What the thread worked with last, in whichever mode.
    pub last: Option<&'a str>,
    /// What the trusted project names for the mode.
    pub project_mode: Option<&'a str>,
    /// What it names for all modes.
    pub project: Option<&'a str>,
}

/// What the user has set for a role.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings<'a> {
    /// For this role alone, with the setting's name.
    pub own: Option<(&'static str, &'a str)>,
    /// For the work in general.
    pub model: Option<&'a str>,
    /// The chosen pack.
    pub pack: Option<&'a Pack>,
}

/// All that is wished for a role, what counts most first. `reachable` is what a client can use when nobody wishes anything.
///
/// The order: the run; the thread, for the role; the setting of the role; then `model` of the settings (before it what the
/// thread did last) or, where none is set, the pack (behind it what the thread did last); then what can be reached.
#[must_use]
pub fn wished(role: Role, wishes: &Wishes<'_>, settings: &Settings<'_>, reachable: Option<&str>) -> Vec<Assigned> {
    let mut all = Vec::new();
    let mut add = |model: Option<&str>, reason: Reason| {
        if let Some(model) = model.filter(|model| !model.is_empty()) {
            all.push(Assigned { model: model.to_owned(), thinking: None, reason });
        }
    };
    let last = wishes.last;
    if role.speaks() {
        add(wishes.run, Reason::Run);
        add(wishes.thread, Reason::Thread);
        add(wishes.project_mode, Reason::Setting("the project's modes"));
    }
    add(settings.own.map(|(_, model)| model), Reason::Setting(settings.own.map_or("", |(key, _)| key)));
    let general = wishes.project.or(settings.model).filter(|_| role.speaks());
    if general.is_some() {
        add(last, Reason::Last);
        add(wishes.project, Reason::Setting("the project's model"));
        add(settings.model, Reason::Setting("model"));
    }
    if let Some(pack) = settings.pack
        && let Some(model) = pack.model(role)
    {
        add(Some(model), Reason::Pack(pack.name.clone()));
    }
    if role.speaks() {
        add(last, Reason::Last);
        add(reachable, Reason::Reachable);
    } else {
        // Something small of the same provider, else the conversation's own model.
        add(reachable, Reason::Reachable);
        add(last, Reason::Last);
    }
    if let Some(pack) = settings.pack {
        let of_pack = |assigned: &&mut Assigned| matches!(assigned.reason, Reason::Pack(_));
        all.iter_mut().filter(of_pack).for_each(|assigned| assigned.thinking = pack.thinking.get(&role).copied());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalogue, ModelRef};

    fn pack(models: &[(Role, &str)]) -> Pack {
        Pack {
            name: "p".into(),
            models: models.iter().map(|(role, model)| (*role, (*model).to_owned())).collect(),
            thinking: BTreeMap::from([(Role::Plan, ThinkingLevel::High)]),
            built_in: false,
        }
    }

    #[test]
    fn who_wishes_what_is_weighed_in_order() {
        let mine = pack(&[(Role::Build, "pack/build"), (Role::Plan, "pack/plan"), (Role::Small, "pack/small")]);
        let full = Wishes {
            run: Some("run/m"),
            thread: Some("thread/m"),
            last: Some("last/m"),
            project_mode: Some("project/mode"),
            project: Some("project/m"),
        };
        let set = Settings { own: Some(("modes.plan.model", "set/mode")), model: Some("set/m"), pack: Some(&mine) };
        let order = |role, wishes: &Wishes<'_>, settings: &Settings<'_>| {
            let all = wished(role, wishes, settings, Some("reached/m"));
            all.into_iter().map(|assigned| assigned.model).collect::<Vec<_>>()
        };
        assert_eq!(
            order(Role::Plan, &full, &set),
            [
                "run/m",
                "thread/m",
                "project/mode",
                "set/mode",
                "last/m",
                "project/m",
                "set/m",
                "pack/plan",
                "last/m",
                "reached/m"
            ]
        );
        // Without `model`, the pack comes before what the thread did last.
        let of_pack = Settings { pack: Some(&mine), ..Settings::default() };
        let moved = Wishes { last: Some("last/m"), ..Wishes::default() };
        assert_eq!(order(Role::Explore, &moved, &of_pack), ["pack/build", "last/m", "reached/m"]);
        assert_eq!(order(Role::Build, &moved, &Settings::default()), ["last/m", "reached/m"]);
        // What works beside the conversation is never what the run names.
        assert_eq!(order(Role::Judge, &full, &of_pack), ["pack/build", "reached/m", "last/m"]);
        let plan = &wished(Role::Plan, &moved, &of_pack, None)[0];
        assert_eq!((plan.thinking, &plan.reason), (Some(ThinkingLevel::High), &Reason::Pack("p".into())));
        assert_eq!(wished(Role::Plan, &moved, &of_pack, None)[1].thinking, None);
    }

    #[test]
    fn roles_without_a_model_have_stand_ins() {
        let mine = pack(&[(Role::Build, "a/build"), (Role::Small, "a/small")]);
        for (role, model) in [(Role::Plan, "a/build"), (Role::Reflector, "a/small"), (Role::Small, "a/small")] {
            assert_eq!(mine.model(role), Some(model), "{role}");
        }
        assert_eq!(pack(&[(Role::Small, "a/small")]).model(Role::Build), None);
        for role in Role::ALL {
            assert_eq!(Role::named(role.as_str()), Some(role));
        }
    }

    #[test]
    fn a_providers_pack_has_a_strong_and_a_cheap_model_of_any_vendor() {
        let of = |provider: &str| -> Vec<ModelInfo> {
            let all = Catalogue::bundled().models().iter();
            let own = |info: &&ModelInfo| info.id.parse::<ModelRef>().is_ok_and(|model| model.provider == provider);
            all.filter(own).cloned().collect()
        };
        for (provider, preferred) in
            [("anthropic", Some("anthropic/claude-sonnet-5")), ("openai", Some("openai/gpt-5.5")), ("google", None)]
        {
            let models = of(provider);
            let pack = Pack::of_provider(provider, preferred, &models).unwrap();
            let cost = |role| price(models.iter().find(|info| pack.model(role) == Some(&info.id)).unwrap());
            assert!(cost(Role::Small) < cost(Role::Build), "{pack:?}");
            assert_eq!(
                (pack.model(Role::Judge), pack.model(Role::Plan)),
                (pack.model(Role::Build), pack.model(Role::Build))
            );
            assert_eq!(pack.model(Role::Observer), pack.model(Role::Small));
        }
        // One model, or one without a price, has all roles.
        let one = ModelInfo { pricing: None, ..of("groq").remove(0) };
        let pack = Pack::of_provider("groq", None, std::slice::from_ref(&one)).unwrap();
        assert!(Role::ALL.iter().all(|role| pack.model(*role) == Some(&one.id)));
        assert_eq!(Pack::of_provider("none", None, &[]), None);
    }
}
