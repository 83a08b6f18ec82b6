//! Which model a request goes to: the run's own, then those to fall back to, in order. One that is out of reach is left out
//! while another can be had, and comes back after its cooldown.

use mcode_env::Timestamp;
use mcode_events::run::RunError;
use mcode_models::{ModelError, ModelErrorKind, ResolvedModel};

use crate::asking::{Asked, Asking};
use crate::drive::Driver;
use crate::step::failure;

/// The models of one request.
pub(crate) struct Chain {
    models: Vec<String>,
    /// Those that were asked, or can not be.
    done: Vec<bool>,
    /// Why the last one was left.
    pub(crate) left: Option<ModelError>,
}

impl Chain {
    pub(crate) fn new(model: &str, fallback: &[String]) -> Self {
        let mut models = vec![model.to_owned()];
        for next in fallback {
            if !models.contains(next) {
                models.push(next.clone());
            }
        }
        Self { done: vec![false; models.len()], models, left: None }
    }

    /// Whether any model was not asked yet.
    pub(crate) fn has_next(&self) -> bool {
        self.done.contains(&false)
    }

    /// The name of a model that was chosen.
    pub(crate) fn name(&self, choice: &Choice) -> Option<&String> {
        self.models.get(choice.at)
    }

    fn open(&self) -> impl Iterator<Item = (usize, &String)> {
        self.models.iter().enumerate().filter(|(at, _)| !self.done[*at])
    }
}

/// The next model to ask, and what was passed over for it.
pub(crate) struct Choice {
    at: usize,
    resolved: ResolvedModel,
    passed: Vec<Candidate>,
    unusable: Vec<(usize, ModelError)>,
}

/// A model that could be asked, and until when it is better left alone.
struct Candidate {
    at: usize,
    resolved: ResolvedModel,
    avoided: Option<Timestamp>,
}

impl Driver {
    /// Whether a model that was not asked yet can be asked now.
    pub(crate) fn has_free(&self, chain: &Chain) -> bool {
        chain.open().any(|(_, model)| {
            let resolved = self.services.models.resolve(model, &self.context.client_env);
            resolved
                .is_ok_and(|resolved| self.services.gates.avoided_until(&self.services.gates.gate(&resolved)).is_none())
        })
    }

    /// The next model to ask: the first that is within reach, else the one that is soonest.
    pub(crate) fn choose(&self, chain: &mut Chain) -> Result<Choice, RunError> {
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut unusable = Vec::new();
        for (at, model) in chain.open() {
            match self.services.models.resolve(model, &self.context.client_env) {
                Ok(resolved) => {
                    let avoided = self.services.gates.avoided_until(&self.services.gates.gate(&resolved));
                    let free = avoided.is_none();
                    candidates.push(Candidate { at, resolved, avoided });
                    if free {
                        break;
                    }
                }
                Err(error) => unusable.push((at, self.services.redactor.error(error))),
            }
        }
        // The model that was asked for counts: that it can not be asked is what the user has to know.
        if let (Some((0, error)), None) = (unusable.first(), &chain.left) {
            return Err(failure(error));
        }
        let soonest = (0..candidates.len()).min_by_key(|index| candidates[*index].avoided.map_or(0, Timestamp::millis));
        let Some(soonest) = soonest else {
            // A fallback that can not be asked must not hide why it was wanted.
            let unknown = || ModelError::new(ModelErrorKind::UnknownModel, "no model can be asked");
            return Err(self.with_the_time(&chain.left.take().unwrap_or_else(unknown)));
        };
        let Candidate { at, resolved, .. } = candidates.remove(soonest);
        Ok(Choice { at, resolved, passed: candidates, unusable })
    }

    /// Goes on with what was chosen, and tells of it.
    pub(crate) async fn take(
        &mut self,
        asking: &mut Asking,
        chain: &mut Chain,
        choice: Choice,
    ) -> Result<ResolvedModel, Asked> {
        let Choice { at, resolved, passed, unusable } = choice;
        self.tell_choice(asking, chain, &resolved, &passed, &unusable).await?;
        for (unusable, _) in &unusable {
            chain.done[*unusable] = true;
        }
        chain.done[at] = true;
        Ok(resolved)
    }

    /// Says which model it goes on with, and why; of the same detour only once.
    async fn tell_choice(
        &mut self,
        asking: &mut Asking,
        chain: &Chain,
        chosen: &ResolvedModel,
        passed: &[Candidate],
        unusable: &[(usize, ModelError)],
    ) -> Result<(), Asked> {
        let id = &chosen.info.id;
        if let Some(left) = &chain.left {
            let others: String = unusable.iter().map(|(_, error)| format!("; {}", error.message)).collect();
            self.begin_anew(asking, &format!("{}{others}; going on with {id}", left.message)).await?;
            return Ok(());
        }
        let main = passed.iter().find(|candidate| candidate.at == 0);
        let Some((main, until)) = main.and_then(|main| Some((&main.resolved.info.id, main.avoided?))) else {
            self.detour = None;
            return Ok(());
        };
        let detour = (main.clone(), id.clone());
        if self.detour.as_ref() != Some(&detour) {
            let time = self.clock_text(until);
            self.begin_anew(asking, &format!("{main} is out of reach until {time}; going on with {id}")).await?;
            self.detour = Some(detour);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_stands_once_in_the_chain() {
        let mut chain = Chain::new("a/x", &["b/y".into(), "a/x".into(), "b/y".into()]);
        assert_eq!(chain.open().map(|(_, model)| model.as_str()).collect::<Vec<_>>(), ["a/x", "b/y"]);
        chain.done[0] = true;
        assert!(chain.has_next());
        chain.done[1] = true;
        assert!(!chain.has_next());
    }
}
