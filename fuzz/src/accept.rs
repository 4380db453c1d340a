//! Accept-Encoding fields.

use haulier_proto::accept::{Accepted, Coding};
use haulier_proto::field::Fields;

/// Weights stay in their range, and what is chosen is accepted, and by nothing else beaten.
pub fn check(data: &[u8]) {
    let mut fields = Fields::new();
    for line in data.split(|&byte| byte == b'\n') {
        fields.append("Accept-Encoding", line);
    }
    let accepted = Accepted::of(&fields);
    let best = accepted.best(&Coding::PLAIN);
    for coding in Coding::PLAIN {
        assert!(accepted.weight(coding) <= 1000);
        let most = best.map_or(0, |best| accepted.weight(best));
        assert!(accepted.weight(coding) <= most, "{coding:?} is taken more gladly");
    }
    assert!(best.is_none_or(|best| accepted.weight(best) > 0));
}
