//! Clients that send requests without a pause during a test.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use haulier_php::{Pool, PoolError};
use tokio::task::JoinSet;

use super::{Call, wait_until_async};

/// Clients that each send one request after the other.
pub(crate) struct Visitors {
    tasks: JoinSet<()>,
    shared: Rc<Shared>,
}

struct Shared {
    is_over: Cell<bool>,
    /// Number of answers of each client, failures included.
    answers: Vec<Cell<usize>>,
    outcomes: RefCell<Vec<Result<(), PoolError>>>,
}

impl Visitors {
    pub(crate) fn start(pool: &Arc<Pool>, count: usize, call: impl Fn() -> Call) -> Self {
        let shared = Rc::new(Shared {
            is_over: Cell::new(false),
            answers: vec![Cell::new(0); count],
            outcomes: RefCell::default(),
        });
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let (pool, call, shared) = (Arc::clone(pool), call(), Rc::clone(&shared));
            tasks.spawn_local(async move {
                while !shared.is_over.get() {
                    let outcome = call.answer(&pool).await.map(|answer| {
                        assert!(answer.text().starts_with("slept "), "never half an answer");
                    });
                    shared.outcomes.borrow_mut().push(outcome);
                    shared.answers[number].update(|answers| answers + 1);
                }
            });
        }
        Self { tasks, shared }
    }

    /// Waits until the current request of each client has been answered.
    pub(crate) async fn all_get_answers(&self) {
        let before: Vec<usize> = self.shared.answers.iter().map(Cell::get).collect();
        wait_until_async("answers for everybody", || {
            self.shared
                .answers
                .iter()
                .zip(&before)
                .all(|(now, before)| now.get() > *before)
        })
        .await;
    }

    /// The results of all requests.
    pub(crate) async fn end(self) -> Vec<Result<(), PoolError>> {
        self.shared.is_over.set(true);
        self.tasks.join_all().await;
        self.shared.outcomes.take()
    }
}
