//! One decision about keys of several slots of a cluster: no script can be asked about them together.
//!
//! First all slots are asked whether they would allow, at the same time. If one would not, nothing is taken. Else the
//! permits are taken in order, slot after slot, and given back if one denies or fails after all: for that moment others
//! may be denied what nobody gets. Never is anybody allowed what only some of the slots have granted.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use tokio::task::spawn_local;

use super::call::{Action, Until};
use super::driver::Driver;
use super::nodes::Part;
use crate::Error;
use crate::guard::Granted;
use crate::store::{Answer, Asked, Question};

/// The store's word.
pub(super) struct Told {
    pub(super) answer: Answer,
    /// When the permits of each question were taken, where their clocks differ.
    pub(super) stamps: Option<Arc<[u64]>>,
}

impl From<Answer> for Told {
    fn from(answer: Answer) -> Self {
        Self { answer, stamps: None }
    }
}

impl Driver {
    pub(super) async fn ask_several(
        self: &Rc<Self>,
        action: &Action,
        questions: &[Question<'_>],
        parts: &[Part],
        until: Until,
    ) -> Result<Told, Error> {
        match action {
            Action::Take { .. } => self.take_several(action, questions, parts, until).await,
            Action::Refund(granted) => {
                let refund = |part: &Part| Action::Refund(Box::new(granted.of(part.places[0])));
                self.each(refund, questions, parts, until).await.map(|answers| joint(&answers, parts).into())
            }
            Action::Peek | Action::Reset => self
                .each(|_| action.clone(), questions, parts, until)
                .await
                .map(|answers| joint(&answers, parts).into()),
        }
    }

    async fn take_several(
        self: &Rc<Self>,
        action: &Action,
        questions: &[Question<'_>],
        parts: &[Part],
        until: Until,
    ) -> Result<Told, Error> {
        let mut answers = self.each(|_| Action::Peek, questions, parts, until).await?;
        if answers.iter().any(|answer| !answer.allowed) {
            return Ok(joint(&answers, parts).into());
        }
        let mut taken = Taken { driver: Rc::clone(self), until, parts: Vec::new() };
        for (part, answer) in parts.iter().zip(&mut answers) {
            let asked = part.of(questions);
            *answer = self.ask(action, &asked, part.slot, until).await?;
            if !answer.allowed {
                return Ok(joint(&answers, parts).into());
            }
            taken.parts.push((Asked::all(&asked), part.slot, answer.stamp));
        }
        taken.parts.clear();
        let mut stamps = vec![0; questions.len()];
        for (part, answer) in parts.iter().zip(&answers) {
            part.places.iter().for_each(|place| stamps[*place] = answer.stamp);
        }
        Ok(Told { answer: joint(&answers, parts), stamps: Some(stamps.into()) })
    }

    /// Asks about all parts at the same time.
    async fn each(
        &self,
        action: impl Fn(&Part) -> Action,
        questions: &[Question<'_>],
        parts: &[Part],
        until: Until,
    ) -> Result<Vec<Answer>, Error> {
        let ask = async |part: &Part| self.ask(&action(part), &part.of(questions), part.slot, until).await;
        all(parts.iter().map(ask)).await.into_iter().collect()
    }
}

impl Part {
    fn of<'a>(&self, questions: &[Question<'a>]) -> Vec<Question<'a>> {
        self.places.iter().map(|place| questions[*place]).collect()
    }
}

/// Permits that were taken for a decision that is not made yet: given back if it never is.
struct Taken {
    driver: Rc<Driver>,
    until: Until,
    parts: Vec<(Arc<[Asked]>, u16, u64)>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        for (asked, slot, stamp) in self.parts.drain(..) {
            let (driver, until) = (Rc::clone(&self.driver), self.until.again());
            spawn_local(async move {
                let questions: Vec<_> = asked.iter().map(Asked::question).collect();
                // If this fails, they come back when their time is over.
                let _ = driver.ask(&Action::Refund(Box::new(Granted::by_store(stamp))), &questions, slot, until).await;
                // Others may have been denied meanwhile what is there again.
                driver.denied().forget(&questions);
            });
        }
    }
}

/// What several answers make together.
fn joint(answers: &[Answer], parts: &[Part]) -> Answer {
    let place = |(answer, part): &(&Answer, &Part)| part.places[answer.which];
    let denied = answers.iter().zip(parts).filter(|(answer, _)| !answer.allowed).min_by_key(place);
    let tightest = || answers.iter().zip(parts).min_by_key(|told| (told.0.remaining, place(told)));
    // There is at least one: of no questions nothing is asked.
    let told = denied.or_else(tightest).unwrap_or((&answers[0], &parts[0]));
    let retries = answers.iter().map(|answer| answer.retry_after);
    // `None`, which is never, outweighs any time.
    let retry_after = retries.collect::<Option<Vec<_>>>().and_then(|retries| retries.into_iter().max());
    Answer { allowed: denied.is_none(), which: place(&told), retry_after, ..*told.0 }
}

/// Waits for all of them at once.
pub(super) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut waiting {
            if output.is_none() {
                match Pin::new(future).poll(context) {
                    Poll::Ready(ready) => *output = Some(ready),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(|(_, output)| output).collect()
}
