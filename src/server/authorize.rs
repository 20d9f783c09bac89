//! Who may do what: one table, role × verb × ownership.
//!
//! What a caller may not see is answered exactly like what does not exist, so that nobody learns which ids there are.

use super::error::ApiError;

/// What a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the verbs of the service
pub enum Verb {
    Start,
    Stop,
    GetStatus,
    Stream,
    List,
    ListOthers,
    Wait,
    Signal,
    Health,
    Quarantine,
    Unquarantine,
    Audit,
    Findings,
    ShowFinding,
    VerifyClean,
    Recover,
}

impl Verb {
    /// All of them.
    #[cfg(test)]
    pub const ALL: [Self; 16] = [
        Self::Start,
        Self::Stop,
        Self::GetStatus,
        Self::Stream,
        Self::List,
        Self::ListOthers,
        Self::Wait,
        Self::Signal,
        Self::Health,
        Self::Quarantine,
        Self::Unquarantine,
        Self::Audit,
        Self::Findings,
        Self::ShowFinding,
        Self::VerifyClean,
        Self::Recover,
    ];

    /// Whether its answer may be withheld: nothing was done, and no operator needs it to get out of trouble.
    pub fn may_withhold(self) -> bool {
        matches!(
            self,
            Self::GetStatus | Self::List | Self::ListOthers | Self::Wait | Self::Findings | Self::ShowFinding
        )
    }

    /// The name in the audit log: the command's own.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::GetStatus => "get-status",
            Self::Stream => "stream",
            Self::List => "list",
            Self::ListOthers => "list-others",
            Self::Wait => "wait",
            Self::Signal => "signal",
            Self::Health => "health",
            Self::Quarantine => "quarantine",
            Self::Unquarantine => "unquarantine",
            Self::Audit => "audit",
            Self::Findings => "findings",
            Self::ShowFinding => "show-finding",
            Self::VerifyClean => "verify-clean",
            Self::Recover => "recover",
        }
    }
}

/// What a caller is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Named in the configuration's `admins`.
    Admin,
    /// Everyone else with a certificate.
    User,
}

/// Whose the task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The caller's.
    Own,
    /// Somebody else's.
    Others,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is done.
    Allow,
    /// As if the task did not exist.
    NotFound,
    /// Refused by name: the request names no task that could be hidden.
    Denied,
}

use Decision::{Allow, Denied, NotFound};

/// Verb; the decision for an administrator's own and others' tasks, and for a user's.
const TABLE: [(Verb, [Decision; 2], [Decision; 2]); 16] = [
    //                   admin: own, others   user: own, others
    (Verb::Start, [Allow, Denied], [Allow, Denied]),
    (Verb::Stop, [Allow, Allow], [Allow, NotFound]),
    (Verb::GetStatus, [Allow, Allow], [Allow, NotFound]),
    (Verb::Stream, [Allow, Allow], [Allow, NotFound]),
    (Verb::List, [Allow, Denied], [Allow, Denied]),
    (Verb::ListOthers, [Allow, Allow], [Denied, Denied]),
    (Verb::Wait, [Allow, Allow], [Allow, NotFound]),
    (Verb::Signal, [Allow, Allow], [Allow, NotFound]),
    // About the worker and not about a task, so nobody owns it.
    (Verb::Health, [Allow, Allow], [Denied, Denied]),
    (Verb::Quarantine, [Allow, Allow], [Denied, Denied]),
    (Verb::Unquarantine, [Allow, Allow], [Denied, Denied]),
    (Verb::Audit, [Allow, Allow], [Denied, Denied]),
    (Verb::Findings, [Allow, Allow], [Denied, Denied]),
    (Verb::ShowFinding, [Allow, Allow], [Denied, Denied]),
    (Verb::VerifyClean, [Allow, Allow], [Denied, Denied]),
    (Verb::Recover, [Allow, Allow], [Denied, Denied]),
];

/// Someone with a certificate of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The certificate's common name.
    pub name: String,
    /// What it makes of them.
    pub role: Role,
}

impl Caller {
    /// The caller of this name.
    pub fn new(name: &str, admins: &[String]) -> Self {
        let role = if admins.iter().any(|admin| admin == name) { Role::Admin } else { Role::User };
        Self { name: name.to_owned(), role }
    }

    /// Whether they may do `verb` to a task of `owner`.
    pub fn may(&self, verb: Verb, owner: &str) -> Result<(), ApiError> {
        let ownership = if self.name == owner { Ownership::Own } else { Ownership::Others };
        match decide(self.role, verb, ownership) {
            Allow => Ok(()),
            NotFound => Err(ApiError::NotFound),
            Denied => {
                let hint = if verb == Verb::ListOthers { ", or leave the owner out to see your own tasks" } else { "" };
                Err(ApiError::Denied(format!("{} is for administrators; ask one of them{hint}", verb.name())))
            }
        }
    }
}

fn decide(role: Role, verb: Verb, ownership: Ownership) -> Decision {
    if crate::mutation::off(crate::mutation::Defence::Ownership) {
        return Allow;
    }
    let row = TABLE.iter().find(|(known, ..)| *known == verb);
    let Some((_, admin, user)) = row else { return Denied };
    let cells = match role {
        Role::Admin => admin,
        Role::User => user,
    };
    match ownership {
        Ownership::Own => cells[0],
        Ownership::Others => cells[1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_verb_once() {
        for verb in Verb::ALL {
            assert_eq!(TABLE.iter().filter(|(known, ..)| *known == verb).count(), 1, "{verb:?}");
        }
    }

    #[test]
    fn nobody_but_an_administrator_reaches_anothers_task() {
        let user = Caller::new("mallory", &["admin".to_owned()]);
        for verb in Verb::ALL {
            assert!(user.may(verb, "alice").is_err(), "{verb:?}");
        }
        for verb in [Verb::Stop, Verb::GetStatus, Verb::Stream, Verb::Wait, Verb::Signal] {
            assert!(matches!(user.may(verb, "alice"), Err(ApiError::NotFound)), "{verb:?}");
            assert!(user.may(verb, "mallory").is_ok());
            assert!(Caller::new("admin", &["admin".to_owned()]).may(verb, "alice").is_ok());
        }
    }

    #[test]
    fn the_worker_itself_is_for_administrators_alone() {
        let admins = ["admin".to_owned()];
        let own = [Verb::Start, Verb::List];
        let of_tasks = [Verb::Stop, Verb::GetStatus, Verb::Stream, Verb::ListOthers, Verb::Wait, Verb::Signal];
        for verb in Verb::ALL.into_iter().filter(|verb| !own.contains(verb) && !of_tasks.contains(verb)) {
            assert!(Caller::new("admin", &admins).may(verb, "").is_ok(), "{verb:?}");
            assert!(matches!(Caller::new("ann", &admins).may(verb, ""), Err(ApiError::Denied(_))), "{verb:?}");
            assert!(matches!(Caller::new("", &admins).may(verb, ""), Err(ApiError::Denied(_))), "{verb:?}");
        }
    }

    #[test]
    fn a_name_is_an_administrators_only_if_it_is_exactly_one() {
        let admins = ["admin".to_owned()];
        for name in ["Admin", "admin ", "admi", "admin2", ""] {
            assert_eq!(Caller::new(name, &admins).role, Role::User, "{name:?}");
        }
    }
}
