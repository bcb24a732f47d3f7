//! Answers that can be given once more: what was done under an idempotency key is not done again.

use super::error::{Refusal, ServeError};
use super::request::Request;
use super::tables::{self, Snapshots};
use super::{Inner, Reply};
use crate::catalog::serve::{Key, Outcome, Recorded};
use crate::error::LakeError;

impl Inner {
    /// Answers a request by `work`, or with what it was answered before.
    pub(super) fn answer(
        &self,
        request: &Request,
        work: impl FnOnce(Option<&Key>) -> Result<Recorded, ServeError>,
    ) -> Result<Reply, ServeError> {
        let key = request.key()?;
        if let Some(key) = &key
            && let Some((request, recorded)) = self.reader.answered(&key.key)?
        {
            return self.reply(same_request(key, &request, recorded)?);
        }
        let outcome = work(key.as_ref());
        if let (Some(key), Err(error)) = (&key, &outcome)
            && let Some(refusal) = error.refusal.recorded()
        {
            self.record_refusal(key, refusal, &error.message);
        }
        self.reply(outcome?)
    }

    /// Records a refusal, so that its repetition is refused too, whatever has changed meanwhile.
    fn record_refusal(&self, key: &Key, refusal: &str, message: &str) {
        let recorded = Recorded {
            refusal: Some(refusal.to_owned()),
            body: Some(message.to_owned()),
            metadata_location: None,
        };
        let now = self.shared.clock.now_us();
        let change = self.shared.catalog.change::<()>(Some(key), now, |_| Ok(Ok(recorded)));
        if let Err(error) | Ok(Outcome::Unknown(error)) = change {
            // The refusal stands all the same: nothing was changed.
            tracing::warn!(%error, "a refused request's answer was not recorded");
        }
    }

    /// Makes a change in one transaction and settles what became of it. `None` if `work` refused.
    pub(super) fn change<R>(
        &self,
        key: Option<&Key>,
        work: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<Result<Recorded, R>>,
    ) -> Result<Result<Recorded, R>, ServeError> {
        let now = self.shared.clock.now_us();
        match self.shared.catalog.change(key, now, work)? {
            Outcome::Done(recorded) => Ok(Ok(recorded)),
            Outcome::Refused(refused) => Ok(Err(refused)),
            Outcome::Answered(request, recorded) => {
                let key = key.ok_or_else(|| LakeError::broken("an answer without a key"))?;
                same_request(key, &request, recorded).map(Ok)
            }
            Outcome::Unknown(error) => Err(ServeError::unknown(error)),
        }
    }

    fn reply(&self, recorded: Recorded) -> Result<Reply, ServeError> {
        if let Some(location) = &recorded.metadata_location {
            return tables::reply(location, Snapshots::All);
        }
        Ok(recorded
            .body
            .map_or(Reply::Nothing, |body| Reply::Json(body.into_bytes())))
    }
}

fn same_request(key: &Key, request: &str, recorded: Recorded) -> Result<Recorded, ServeError> {
    if key.request != request {
        let message = "another request was sent under this Idempotency-Key; nothing was changed";
        return Err(ServeError::new(Refusal::Unprocessable, message));
    }
    match &recorded.refusal {
        None => Ok(recorded),
        Some(name) => {
            let refusal = Refusal::from_recorded(name).unwrap_or(Refusal::BadRequest);
            Err(ServeError::new(refusal, recorded.body.unwrap_or_default()))
        }
    }
}
