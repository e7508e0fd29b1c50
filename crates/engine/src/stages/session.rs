//! A front's session, and the commands that readers of connections send to the thread that computes.

use super::ledger::Ledger;
use super::link::Link;
use super::message::Message;
use super::order::Order;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// A message to the thread that computes. Their number is bounded although the channel is not: a session has one
/// question, and the steps and rows that its [`Ledger`] has allowed; the next session begins after the end of the last
/// was taken from the channel.
pub(super) enum Command {
    /// A front has begun a session.
    Begin(Session),
    /// A question of a session's front.
    Said(u64, Message),
    /// A step that it has ordered.
    Step(u64, Order),
    /// Rows of the stage before, in the order of steps.
    Rows(u64, Vec<f32>),
    /// A session is over.
    End(u64, String),
    /// A session cannot go on: another stage is lost, or what it sent is refused.
    Broken(u64, String),
    Stop,
}

/// A front's session.
pub(super) struct Session {
    /// Numbers of this process.
    pub id: u64,
    pub front: SocketAddr,
    pub link: Link,
    pub ledger: Arc<Ledger>,
    /// To the stage behind, if that is not the front.
    pub next: Option<Link>,
    pub orders: VecDeque<Order>,
    pub rows: VecDeque<Vec<f32>>,
}

impl Session {
    pub(super) fn new(id: u64, front: SocketAddr, link: Link, ledger: Arc<Ledger>) -> Session {
        let (orders, rows) = (VecDeque::new(), VecDeque::new());
        Session { id, front, link, ledger, next: None, orders, rows }
    }
}
