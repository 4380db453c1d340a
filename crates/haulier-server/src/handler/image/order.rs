//! From an address to the variant it orders: who may order it, and what the query means.

use std::time::{SystemTime, UNIX_EPOCH};

use haulier_image::{
    Format, FormatChoice, Hinted, Hints, OptionError, Request as Query, Transform, accept, native, zimg,
};
use haulier_proto::head::RequestHead;
use haulier_store::Key;

use super::failure::Failure;
use super::ready::Terms;
use super::service::{ImageService, Wanted};
use super::settings::Compat;
use super::signature::{self, Verdict};
use crate::context::Visit;
use crate::files::Entry;

/// Parameters of a file's query that may mean something to others (`?v=3`), at most.
const MOST_OTHERS: usize = 8;

/// A variant that may be made for this client.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) wanted: Wanted,
    /// The same in formats the client would rather have, best first: they are sent if they are there, and made behind the
    /// answer if not.
    pub(super) better: Vec<Wanted>,
    /// What chose it beside the address.
    pub(super) terms: Terms,
    /// What is sent where the original does not allow this one, best first: what the client said of its screen and of its
    /// formats chose it, and not the address.
    pub(super) instead: Vec<Self>,
}

impl Order {
    /// For this variant and no other.
    fn of(wanted: Wanted, terms: Terms) -> Self {
        Self {
            wanted,
            better: Vec::new(),
            terms,
            instead: Vec::new(),
        }
    }

    /// What is said of a variant of this rank, 0 the best and [`Order::wanted`] the last: it passes where a better one is
    /// to come.
    pub(super) fn terms_of(&self, rank: usize, service: &ImageService) -> Terms {
        Terms {
            passing: self.better[..rank].iter().any(|better| !service.is_put_off(better)),
            ..self.terms
        }
    }

    /// What is said of [`Order::wanted`].
    pub(super) fn terms_now(&self, service: &ImageService) -> Terms {
        self.terms_of(self.better.len(), service)
    }
}

/// What an address of an image orders.
///
/// # Errors
/// The query means nothing, orders too much, or is not signed.
pub(super) fn of_image(visit: &Visit<'_>, service: &ImageService, id: &Key) -> Result<Order, Failure> {
    let verdict = judge(visit, service)?;
    let query = text(visit.query)?;
    let settings = &service.settings;
    let parsed = match settings.compat {
        Compat::Native => native::parse(query, &settings.defaults, &signature::PARAMETERS),
        Compat::Zimg | Compat::Zimg1 => zimg::parse(query, &settings.defaults),
    };
    let parsed = parsed.map_err(|error| match verdict {
        // Who has no key learns nothing about what a query may say.
        Verdict::Unsigned if !settings.sign.is_empty() => unsigned(),
        _ => Failure::from(&error),
    })?;
    match transform(visit, service, parsed, verdict)? {
        Some(chosen) => Ok(settled(visit, service, chosen, |transform| {
            service.stored(id, Some(transform))
        })),
        None => Ok(Order::of(service.stored(id, None), Terms::default())),
    }
}

/// What the query behind a file's path orders; `None` if nothing in it is for us.
pub(super) fn of_file(
    visit: &Visit<'_>,
    service: &ImageService,
    entry: &Entry,
    query: &[u8],
) -> Option<Result<Order, Failure>> {
    // What is no text is none of our parameters.
    let query = std::str::from_utf8(query).ok()?;
    let parsed = match read_beside_others(query, service)? {
        Ok(parsed) => parsed,
        Err(error) => return Some(Err(Failure::from(&error))),
    };
    let ordered = judge(visit, service).and_then(|verdict| transform(visit, service, parsed, verdict));
    Some(match ordered {
        Ok(Some(chosen)) => Ok(settled(visit, service, chosen, |transform| {
            service.file(visit.path, entry, transform)
        })),
        Ok(None) => return None,
        Err(failure) => Err(failure),
    })
}

/// Pages put a number of their own behind the names of files: a parameter nobody here knows is passed over.
fn read_beside_others(query: &str, service: &ImageService) -> Option<Result<Query, OptionError>> {
    let mut others: Vec<String> = signature::PARAMETERS.map(str::to_owned).to_vec();
    for _ in 0..MOST_OTHERS {
        let names: Vec<&str> = others.iter().map(String::as_str).collect();
        match native::parse(query, &service.settings.defaults, &names) {
            Ok(Query::Original) => return None,
            Err(OptionError::Unknown(name)) => others.push(name),
            parsed => return Some(parsed),
        }
    }
    None
}

fn text(query: Option<&[u8]>) -> Result<&str, Failure> {
    std::str::from_utf8(query.unwrap_or_default()).map_err(|_| Failure::new(400, "the query is no text"))
}

/// Whether the address is signed; one that is signed wrongly orders nothing.
fn judge(visit: &Visit<'_>, service: &ImageService) -> Result<Verdict, Failure> {
    let keys = &service.settings.sign;
    if keys.is_empty() {
        return Ok(Verdict::Unsigned);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match signature::judge(keys, visit.request.head.target(), now.as_secs()) {
        Verdict::Wrong => Err(Failure::new(403, "the signature is not that of this address")),
        Verdict::Expired => Err(Failure::new(403, "the address has expired")),
        verdict => Ok(verdict),
    }
}

fn unsigned() -> Failure {
    Failure::new(403, "the address is not signed")
}

/// A transform, and who thought of it.
struct Chosen {
    transform: Transform,
    /// As the query has it, where a hint asks for more than that.
    unhinted: Option<Transform>,
    /// The client did: the site neither wrote it down as a preset nor signed it.
    by_client: bool,
    /// The hint of the client that changes it.
    hinted: Hinted,
}

/// What a client says of its screen.
pub(super) fn hints(head: &RequestHead) -> Hints {
    let text = |name| std::str::from_utf8(head.fields().get(name)?).ok();
    Hints::read(
        text("Sec-CH-DPR").or_else(|| text("DPR")),
        text("Sec-CH-Width").or_else(|| text("Width")),
    )
}

/// Lets the client's hints choose what a query leaves open, and tells the one that counts, whether or not it was sent.
fn follow(visit: &Visit<'_>, service: &ImageService, mut transform: Transform, by_client: bool) -> Chosen {
    let settings = &service.settings;
    let hinted = match settings.client_hints {
        true => transform.hinted(),
        false => Hinted::Nothing,
    };
    let mut unhinted = (hinted == Hinted::Density).then(|| transform.clone());
    if hinted != Hinted::Nothing {
        transform.follow(&hints(&visit.request.head), &settings.widths, &settings.limits);
    }
    // A width that was hinted is one of the ladder, or as near as the limits allow.
    if by_client && hinted != Hinted::Width {
        transform.round_to(&settings.widths);
        if let Some(unhinted) = &mut unhinted {
            unhinted.round_to(&settings.widths);
        }
    }
    // The ladder may have made too much of a hint.
    if transform.check(&settings.limits).is_err()
        && let Some(unhinted) = unhinted.take()
    {
        transform = unhinted;
    }
    Chosen {
        unhinted: unhinted.filter(|unhinted| *unhinted != transform),
        transform,
        by_client,
        hinted,
    }
}

/// The transform a query orders, if it may: a preset always, anything else as the settings say.
fn transform(
    visit: &Visit<'_>,
    service: &ImageService,
    parsed: Query,
    verdict: Verdict,
) -> Result<Option<Chosen>, Failure> {
    let settings = &service.settings;
    let is_free = match verdict {
        Verdict::Valid => true,
        _ => settings.sign.is_empty() && !settings.only_presets,
    };
    let transform = match parsed {
        Query::Preset(name) => {
            let preset = service.preset(&name).cloned();
            let transform = preset.ok_or_else(|| Failure::new(404, "there is no such preset"))?;
            return Ok(Some(follow(visit, service, transform, false)));
        }
        _ if !is_free && settings.only_presets => return Err(Failure::new(403, "only presets are made here")),
        _ if !is_free => return Err(unsigned()),
        Query::Original => return Ok(None),
        Query::Transform(transform) => transform,
    };
    let chosen = follow(visit, service, transform, !matches!(verdict, Verdict::Valid));
    let judged = chosen.transform.check(&settings.limits);
    judged.map_err(|error| Failure::new(400, error.to_string()))?;
    Ok(Some(chosen))
}

/// Settles the format by Accept.
fn settled(visit: &Visit<'_>, service: &ImageService, chosen: Chosen, wanted: impl Fn(Transform) -> Wanted) -> Order {
    let accepts = visit.request.head.fields().get("Accept");
    let accepts = accepts.and_then(|accepts| std::str::from_utf8(accepts).ok());
    let Chosen {
        transform,
        unhinted,
        by_client,
        hinted,
    } = chosen;
    let terms = Terms {
        accept: transform.format == FormatChoice::Auto,
        hinted,
        ..Terms::default()
    };
    let wanted = |transform| Wanted {
        by_client,
        ..wanted(transform)
    };
    if !terms.accept {
        let order = |transform| Order::of(wanted(transform), terms);
        return Order {
            instead: unhinted.into_iter().map(order).collect(),
            ..order(transform)
        };
    }
    let ways = ways(accepts, service, transform.still);
    let in_format = |transform: &Transform, (format, moving)| {
        let mut transform = transform.clone();
        transform.settle(format);
        transform.moving = moving;
        wanted(transform)
    };
    let transforms = [Some(transform), unhinted];
    let mut orders = transforms.iter().flatten().flat_map(|transform| {
        ways.iter().map(|way| Order {
            better: way.behind.iter().map(|&behind| in_format(transform, behind)).collect(),
            ..Order::of(in_format(transform, way.now), terms)
        })
    });
    let first = orders.next().expect("there is a way for every client");
    Order {
        instead: orders.collect(),
        ..first
    }
}

/// A way to choose formats.
struct Way {
    /// For the first answer, and whether animations are refused.
    now: (Format, bool),
    /// For what is made behind it, best first.
    behind: Vec<(Format, bool)>,
}

/// The ways for this client: the first one, and the one for animations that it refuses. In a format that holds one picture
/// they would stand still: they are sent in the next one that holds them all, if the client takes any.
fn ways(accepts: Option<&str>, service: &ImageService, still: bool) -> Vec<Way> {
    let (offered, slow) = (&service.settings.formats, service.behind());
    let (now, behind) = accept::choose_with(accepts, offered, slow);
    let animated = match still {
        true => Vec::new(),
        false => accept::choose_animated(accepts, offered),
    };
    let refuses = |format: Format| !animated.is_empty() && !format.is_animated();
    let behind: Vec<_> = behind.into_iter().map(|format| (format, refuses(format))).collect();
    let mut others = animated.iter().copied().filter(|format| !slow.contains(format));
    let other = others.next().filter(|_| !now.is_animated());
    let with_one = other.map(|other| Way {
        now: (other, false),
        behind: behind
            .iter()
            .copied()
            .filter(|(format, _)| format.is_animated())
            .collect(),
    });
    let first = Way {
        now: (now, other.is_some()),
        behind,
    };
    // Not every picture is made as an AVIF: one that is enlarged, or would not be written in time, is sent in another format.
    let is_avif_alone = now == Format::Avif && with_one.is_none();
    let without_avif = is_avif_alone.then(|| {
        let others: Vec<Format> = offered
            .iter()
            .copied()
            .filter(|format| *format != Format::Avif)
            .collect();
        let (now, _) = accept::choose_with(accepts, &others, slow);
        Way {
            now: (now, false),
            behind: Vec::new(),
        }
    });
    std::iter::once(first).chain(with_one).chain(without_avif).collect()
}
