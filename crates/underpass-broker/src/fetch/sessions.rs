//! Fetch sessions (KIP-227): a consumer of many partitions names only those that have changed since
//! its last request, and gets only those that have news.
//!
//! ```text
//!  epoch 0     all partitions; a session begins     the response has its ID, 0 without room
//!  epoch n     the n-th request of a session        what has changed, both ways
//!  epoch −1    all partitions, no session           the one that is named ends
//! ```
//!
//! A session belongs to a principal: to others it does not exist. Its ID is no secret, and its
//! responses would name topics that others may not describe.
//!
//! A session that is in use is absent from the cache, except for its epoch: a second request of the
//! same epoch finds the next one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::fetch::asked::{AskedPartition, TopicNaming, are_distinct};
use crate::lock::lock;
use crate::protocol::error_code::ErrorCode;
use crate::security::principal::Principal;
use crate::security::random;

/// The epoch of a request without a session that ends the one it names.
const FINAL_EPOCH: i32 = -1;
/// The epoch of a request that begins a session.
const INITIAL_EPOCH: i32 = 0;
/// The ID that means no session.
const NO_SESSION: i32 = 0;

/// The number of sessions, as in Kafka (`max.incremental.fetch.session.cache.slots`).
const SESSIONS_MAX: usize = 1000;
/// The number of partitions in all sessions, of about 100 bytes each.
const PARTITIONS_MAX: usize = 200_000;
/// A session that is unused for this long makes room for another one, as in Kafka.
const UNUSED_MAX: Duration = Duration::from_secs(120);

/// The sessions of all clients.
#[derive(Debug, Default)]
pub(crate) struct FetchSessions(Mutex<SessionCache>);

#[derive(Debug, Default)]
struct SessionCache {
    sessions: HashMap<i32, CachedSession>,
    /// The sum over all sessions, those in use included.
    partitions: usize,
}

#[derive(Debug)]
struct CachedSession {
    owner: Principal,
    naming: TopicNaming,
    /// The epoch that the next request must have.
    epoch: i32,
    used: Instant,
    /// None while a request is in progress.
    partitions: Option<Vec<AskedPartition>>,
    /// Counted in the cache.
    size: usize,
}

/// A request of a client, with its session if it has one.
#[derive(Debug)]
pub(crate) struct SessionUse<'a> {
    sessions: &'a FetchSessions,
    kind: SessionKind,
    owner: &'a Principal,
    naming: TopicNaming,
    pub(crate) partitions: Vec<AskedPartition>,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SessionKind {
    /// Without a session.
    Full,
    /// A session begins with the response.
    First,
    /// A later request of the session with this ID.
    Incremental(i32),
}

impl FetchSessions {
    /// Begins a request of `owner` that names this session and epoch.
    ///
    /// # Errors
    /// The session is gone or another principal's, is used by another request or with another
    /// epoch, or named topics in another way: the client begins a new one.
    pub(crate) fn begin<'a>(
        &'a self,
        owner: &'a Principal,
        (id, epoch): (i32, i32),
        naming: TopicNaming,
    ) -> Result<SessionUse<'a>, ErrorCode> {
        let mut cache = lock(&self.0);
        let (kind, partitions) = match epoch {
            FINAL_EPOCH | INITIAL_EPOCH => {
                if cache.is_owned(id, owner) {
                    cache.remove(id);
                }
                let kind = match epoch {
                    INITIAL_EPOCH => SessionKind::First,
                    _ => SessionKind::Full,
                };
                (kind, Vec::new())
            }
            _ if !cache.is_owned(id, owner) => return Err(ErrorCode::FetchSessionIdNotFound),
            _ => (
                SessionKind::Incremental(id),
                cache.take((id, epoch), naming)?,
            ),
        };
        Ok(SessionUse {
            sessions: self,
            kind,
            owner,
            naming,
            partitions,
        })
    }
}

impl SessionCache {
    fn is_owned(&self, id: i32, owner: &Principal) -> bool {
        let session = self.sessions.get(&id);
        session.is_some_and(|session| session.owner == *owner)
    }

    fn take(
        &mut self,
        (id, epoch): (i32, i32),
        naming: TopicNaming,
    ) -> Result<Vec<AskedPartition>, ErrorCode> {
        let session = self.sessions.get_mut(&id);
        let session = session.ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.naming != naming {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        if session.epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        let partitions = session.partitions.take();
        let partitions = partitions.ok_or(ErrorCode::InvalidFetchSessionEpoch)?;
        session.epoch = epoch.checked_add(1).unwrap_or(1);
        session.used = Instant::now();
        Ok(partitions)
    }

    fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.partitions -= session.size;
        }
    }

    /// Returns whether there is room for another session of this size, and makes it.
    fn makes_room(&mut self, size: usize) -> bool {
        while self.sessions.len() >= SESSIONS_MAX || self.partitions + size > PARTITIONS_MAX {
            let oldest = self.sessions.iter().min_by_key(|(_, one)| one.used);
            match oldest {
                Some((&id, one)) if one.used.elapsed() > UNUSED_MAX => self.remove(id),
                _ => return false,
            }
        }
        true
    }

    /// Begins a session whose first request is in progress; returns its ID.
    fn insert(&mut self, owner: &Principal, naming: TopicNaming, size: usize) -> i32 {
        if size == 0 || !self.makes_room(size) {
            return NO_SESSION;
        }
        loop {
            let id = i32::from_be_bytes(random::bytes()) & i32::MAX;
            if let (true, Entry::Vacant(entry)) = (id != NO_SESSION, self.sessions.entry(id)) {
                entry.insert(CachedSession {
                    owner: owner.clone(),
                    naming,
                    epoch: 1,
                    used: Instant::now(),
                    partitions: None,
                    size,
                });
                self.partitions += size;
                return id;
            }
        }
    }

    /// Adjusts the size of a session in use; a session without partitions or room ends.
    fn resize(&mut self, id: i32, size: usize) -> i32 {
        let Some(session) = self.sessions.get_mut(&id) else {
            return NO_SESSION;
        };
        let others = self.partitions - session.size;
        if size == 0 || others + size > PARTITIONS_MAX {
            self.remove(id);
            return NO_SESSION;
        }
        session.size = size;
        self.partitions = others + size;
        id
    }
}

impl SessionUse<'_> {
    /// Returns whether the response lists only partitions that have changed.
    pub(crate) fn is_incremental(&self) -> bool {
        matches!(self.kind, SessionKind::Incremental(_))
    }

    /// Keeps the session for the next request, if it has one or one begins, and returns its ID for
    /// the response.
    pub(crate) fn keep(&mut self) -> i32 {
        let size = self.partitions.len();
        let mut cache = lock(&self.sessions.0);
        let id = match self.kind {
            SessionKind::First if are_distinct(&self.partitions, self.naming) => {
                cache.insert(self.owner, self.naming, size)
            }
            SessionKind::Full | SessionKind::First => NO_SESSION,
            SessionKind::Incremental(id) => cache.resize(id, size),
        };
        // From here on a first request is as a later one: its session is in use.
        self.kind = match id {
            NO_SESSION => SessionKind::Full,
            id => SessionKind::Incremental(id),
        };
        id
    }
}

impl Drop for SessionUse<'_> {
    /// Puts the partitions back, also if the client has closed the connection: it may continue on
    /// another one.
    fn drop(&mut self) {
        let SessionKind::Incremental(id) = self.kind else {
            return;
        };
        let mut cache = lock(&self.sessions.0);
        if let Some(session) = cache.sessions.get_mut(&id) {
            session.partitions = Some(mem::take(&mut self.partitions));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    /// Returns a principal, for the time of the tests.
    fn anna() -> &'static Principal {
        static ANNA: LazyLock<Principal> = LazyLock::new(|| Principal::user("anna"));
        &ANNA
    }

    /// Begins a session of some partitions; returns its ID.
    fn first(sessions: &FetchSessions, partitions: i32) -> i32 {
        let mut used = sessions.begin(anna(), (0, 0), TopicNaming::Names).unwrap();
        used.partitions = (0..partitions).map(AskedPartition::sample).collect();
        used.keep()
    }

    fn later(sessions: &FetchSessions, id: i32, epoch: i32) -> Result<SessionUse<'_>, ErrorCode> {
        sessions.begin(anna(), (id, epoch), TopicNaming::Names)
    }

    #[test]
    fn a_session_continues_with_the_next_epoch_only() {
        let sessions = FetchSessions::default();
        let id = first(&sessions, 3);
        assert_ne!(id, 0);
        let error = |id, epoch| later(&sessions, id, epoch).unwrap_err();
        assert_eq!(error(id, 2), ErrorCode::InvalidFetchSessionEpoch);
        assert_eq!(error(id ^ 1, 1), ErrorCode::FetchSessionIdNotFound);
        let ids = sessions
            .begin(anna(), (id, 1), TopicNaming::Ids)
            .unwrap_err();
        assert_eq!(ids, ErrorCode::FetchSessionTopicIdError);
        let mut used = later(&sessions, id, 1).unwrap();
        assert_eq!(used.partitions.len(), 3);
        // Another request meanwhile, also of the next epoch.
        assert_eq!(error(id, 1), ErrorCode::InvalidFetchSessionEpoch);
        assert_eq!(error(id, 2), ErrorCode::InvalidFetchSessionEpoch);
        assert_eq!(used.keep(), id);
        drop(used);
        // A request whose client has gone counts.
        drop(later(&sessions, id, 2).unwrap());
        assert_eq!(later(&sessions, id, 3).unwrap().partitions.len(), 3);
    }

    #[test]
    fn a_session_does_not_exist_for_others_than_its_principal() {
        let sessions = FetchSessions::default();
        let id = first(&sessions, 2);
        let ben = Principal::user("ben");
        let names = TopicNaming::Names;
        let refused = sessions.begin(&ben, (id, 1), names).unwrap_err();
        assert_eq!(refused, ErrorCode::FetchSessionIdNotFound);
        for epoch in [INITIAL_EPOCH, FINAL_EPOCH] {
            drop(sessions.begin(&ben, (id, epoch), names).unwrap());
        }
        assert_eq!(later(&sessions, id, 1).unwrap().partitions.len(), 2);
    }

    #[test]
    fn epochs_wrap_to_1() {
        let sessions = FetchSessions::default();
        let id = first(&sessions, 1);
        lock(&sessions.0).sessions.get_mut(&id).unwrap().epoch = i32::MAX;
        drop(later(&sessions, id, i32::MAX).unwrap());
        assert!(later(&sessions, id, 1).is_ok());
    }

    #[test]
    fn a_full_request_ends_the_session_that_it_names() {
        for epoch in [FINAL_EPOCH, INITIAL_EPOCH] {
            let sessions = FetchSessions::default();
            let id = first(&sessions, 2);
            let ended = sessions
                .begin(anna(), (id, epoch), TopicNaming::Names)
                .unwrap();
            assert!(!ended.is_incremental() && ended.partitions.is_empty());
            assert_eq!(lock(&sessions.0).partitions, 0);
            assert!(later(&sessions, id, 1).is_err());
        }
    }

    #[test]
    fn a_session_ends_with_its_last_partition_and_by_a_request_in_between() {
        let sessions = FetchSessions::default();
        let id = first(&sessions, 2);
        let mut used = later(&sessions, id, 1).unwrap();
        used.partitions.clear();
        assert_eq!(used.keep(), 0);
        drop(used);
        assert!(later(&sessions, id, 2).is_err());
        let id = first(&sessions, 2);
        let mut used = later(&sessions, id, 1).unwrap();
        drop(
            sessions
                .begin(anna(), (id, FINAL_EPOCH), TopicNaming::Names)
                .unwrap(),
        );
        assert_eq!(used.keep(), 0);
        drop(used);
        let cache = lock(&sessions.0);
        assert!(cache.sessions.is_empty() && cache.partitions == 0);
    }

    #[test]
    fn sessions_and_their_partitions_are_bounded_and_the_unused_make_room() {
        let sessions = FetchSessions::default();
        let many = i32::try_from(PARTITIONS_MAX).unwrap();
        let id = first(&sessions, many);
        assert_ne!(id, 0);
        assert_eq!(first(&sessions, 1), 0, "no room for partitions");
        let mut used = later(&sessions, id, 1).unwrap();
        used.partitions.push(AskedPartition::sample(many));
        assert_eq!(used.keep(), 0, "nor for more of them in a session");
        drop(used);
        let ids: Vec<_> = (0..SESSIONS_MAX).map(|_| first(&sessions, 1)).collect();
        assert!(!ids.contains(&0));
        assert_eq!(first(&sessions, 1), 0, "no room for sessions");
        let long_ago = Instant::now().checked_sub(UNUSED_MAX + Duration::from_secs(1));
        let Some(long_ago) = long_ago else {
            return;
        };
        let mut cache = lock(&sessions.0);
        cache.sessions.get_mut(&ids[7]).unwrap().used = long_ago;
        drop(cache);
        assert_ne!(first(&sessions, 1), 0);
        assert!(later(&sessions, ids[7], 1).is_err());
        assert!(later(&sessions, ids[8], 1).is_ok());
    }

    #[test]
    fn a_partition_that_is_named_twice_is_in_no_session() {
        let sessions = FetchSessions::default();
        let mut used = sessions.begin(anna(), (0, 0), TopicNaming::Names).unwrap();
        used.partitions = [0, 1, 0].map(AskedPartition::sample).into();
        assert_eq!(used.keep(), 0);
    }
}
