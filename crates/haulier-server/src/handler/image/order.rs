//! From an address to a variant: authorisation, and parsing of the query.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use haulier_image::{Format, FormatChoice, Hinted, OptionError, Request as Query, Transform, accept, native, zimg};
use haulier_image_service::VariantRequest;
use haulier_proto::field::Fields;
use haulier_store::Key;

use super::failure::ImageFailure;
use super::signature::{self, Verdict};
use crate::context::RequestContext;
use crate::files::FileEntry;
use crate::images::{Compat, ImageSite, VariantSelection, hints};

/// Most unknown parameters in a query for a file (`?v=3`).
const MOST_OTHERS: usize = 8;

/// A variant that this client may have.
#[derive(Debug, Clone)]
pub(super) struct VariantOrder {
    pub(super) request: VariantRequest,
    /// Formats that the client prefers, best first. They are sent if cached, and rendered in the background if not.
    pub(super) preferred: Vec<VariantRequest>,
    /// The parts of the request that chose it, besides the address.
    pub(super) selection: VariantSelection,
    /// Fields of the response that do not depend on the variant.
    pub(super) frame: Arc<Fields>,
    /// Orders to try if the original does not allow this one, best first; a client hint or Accept chose it, not the
    /// address.
    pub(super) fallbacks: Vec<Self>,
}

impl VariantOrder {
    /// An order for one variant and no other.
    fn of(request: VariantRequest, selection: VariantSelection, frame: Arc<Fields>) -> Self {
        Self {
            request,
            preferred: Vec::new(),
            selection,
            frame,
            fallbacks: Vec::new(),
        }
    }

    /// The selection of a response with the variant of this rank: 0 is the best, the last is [`VariantOrder::request`]. It
    /// is temporary while a better one is being rendered.
    pub(super) fn selection_of(&self, rank: usize, images: &ImageSite) -> VariantSelection {
        let background = images.service.background();
        VariantSelection {
            temporary: self.preferred[..rank]
                .iter()
                .any(|better| !background.has_failed(better)),
            ..self.selection
        }
    }

    /// The selection of a response with [`VariantOrder::request`].
    pub(super) fn selection(&self, images: &ImageSite) -> VariantSelection {
        self.selection_of(self.preferred.len(), images)
    }
}

/// The order in the address of a stored image.
///
/// # Errors
/// The query is invalid, exceeds a limit, or is not signed.
pub(super) fn of_image(
    context: &RequestContext<'_>,
    images: &ImageSite,
    id: &Key,
) -> Result<VariantOrder, ImageFailure> {
    let verdict = judge(context, images)?;
    let query = text(context.query)?;
    let settings = &images.settings;
    let parsed = match settings.compat {
        Compat::Native => native::parse(query, &settings.defaults, &signature::PARAMETERS),
        Compat::Zimg | Compat::Zimg1 => zimg::parse(query, &settings.defaults),
    };
    let parsed = parsed.map_err(|error| match verdict {
        // A client without a signature learns nothing about queries.
        Verdict::Unsigned if !settings.sign.is_empty() => unsigned(),
        _ => ImageFailure::from(&error),
    })?;
    match transform(context, images, parsed, verdict)? {
        Some(chosen) => {
            let variant = |transform| VariantRequest::of_stored(id, Some(transform));
            Ok(settled(context, images, chosen, &images.frame, variant))
        }
        None => {
            let original = VariantRequest::of_stored(id, None);
            Ok(VariantOrder::of(
                original,
                VariantSelection::default(),
                Arc::clone(&images.frame),
            ))
        }
    }
}

/// The order in the query for a file; `None` without known parameters.
pub(super) fn of_file(
    context: &RequestContext<'_>,
    images: &ImageSite,
    entry: &FileEntry,
    query: &[u8],
) -> Option<Result<VariantOrder, ImageFailure>> {
    // Known parameters are text.
    let query = std::str::from_utf8(query).ok()?;
    let parsed = match read_among_others(query, images)? {
        Ok(parsed) => parsed,
        Err(error) => return Some(Err(ImageFailure::from(&error))),
    };
    let ordered = judge(context, images).and_then(|verdict| transform(context, images, parsed, verdict));
    Some(match ordered {
        Ok(Some(chosen)) => {
            let frame = Arc::new(images.frame_of_file(entry));
            let variant = |transform| images.variant_of_file(context.path, entry, transform);
            Ok(settled(context, images, chosen, &frame, variant))
        }
        Ok(None) => return None,
        Err(failure) => Err(failure),
    })
}

/// Reads a query and skips unknown parameters: pages add versions to file names.
fn read_among_others(query: &str, images: &ImageSite) -> Option<Result<Query, OptionError>> {
    let mut others: Vec<String> = signature::PARAMETERS.map(str::to_owned).to_vec();
    for _ in 0..MOST_OTHERS {
        let names: Vec<&str> = others.iter().map(String::as_str).collect();
        match native::parse(query, &images.settings.defaults, &names) {
            Ok(Query::Original) => return None,
            Err(OptionError::Unknown(name)) => others.push(name),
            parsed => return Some(parsed),
        }
    }
    None
}

fn text(query: Option<&[u8]>) -> Result<&str, ImageFailure> {
    std::str::from_utf8(query.unwrap_or_default()).map_err(|_| ImageFailure::new(400, "the query is not UTF-8"))
}

/// Checks the signature of an address; a wrong one is refused.
fn judge(context: &RequestContext<'_>, images: &ImageSite) -> Result<Verdict, ImageFailure> {
    let keys = &images.settings.sign;
    if keys.is_empty() {
        return Ok(Verdict::Unsigned);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match signature::judge(keys, context.request.head.target(), now.as_secs()) {
        Verdict::Wrong => Err(ImageFailure::new(403, "the signature does not match the address")),
        Verdict::Expired => Err(ImageFailure::new(403, "the address has expired")),
        verdict => Ok(verdict),
    }
}

fn unsigned() -> ImageFailure {
    ImageFailure::new(403, "the address is not signed")
}

/// A transform, and its origin.
struct ChosenTransform {
    transform: Transform,
    /// The transform of the query alone, if a hint has enlarged it.
    unhinted: Option<Transform>,
    /// The client chose it: it is neither a preset nor signed.
    by_client: bool,
    /// The hint that changes it.
    hinted: Hinted,
}

/// Applies client hints to a transform, and tells which hint matters, sent or not.
fn follow(
    context: &RequestContext<'_>,
    images: &ImageSite,
    mut transform: Transform,
    by_client: bool,
) -> ChosenTransform {
    let settings = &images.settings;
    let hinted = match settings.client_hints {
        true => transform.hinted(),
        false => Hinted::Nothing,
    };
    let mut unhinted = (hinted == Hinted::Density).then(|| transform.clone());
    if hinted != Hinted::Nothing {
        transform.follow(&hints(&context.request.head), &settings.widths, &settings.limits);
    }
    // A hinted width is on the ladder, or as near as the limits allow.
    if by_client && hinted != Hinted::Width {
        transform.round_to(&settings.widths);
        if let Some(unhinted) = &mut unhinted {
            unhinted.round_to(&settings.widths);
        }
    }
    // The ladder may have enlarged it beyond the limits.
    if transform.check(&settings.limits).is_err()
        && let Some(unhinted) = unhinted.take()
    {
        transform = unhinted;
    }
    ChosenTransform {
        unhinted: unhinted.filter(|unhinted| *unhinted != transform),
        transform,
        by_client,
        hinted,
    }
}

/// The transform of a query, if allowed: presets always, others by the settings.
fn transform(
    context: &RequestContext<'_>,
    images: &ImageSite,
    parsed: Query,
    verdict: Verdict,
) -> Result<Option<ChosenTransform>, ImageFailure> {
    let settings = &images.settings;
    let is_free = match verdict {
        Verdict::Valid => true,
        _ => settings.sign.is_empty() && !settings.only_presets,
    };
    let transform = match parsed {
        Query::Preset(name) => {
            let preset = images.preset(&name).cloned();
            let transform = preset.ok_or_else(|| ImageFailure::new(404, "there is no such preset"))?;
            return Ok(Some(follow(context, images, transform, false)));
        }
        _ if !is_free && settings.only_presets => return Err(ImageFailure::new(403, "this site renders presets only")),
        _ if !is_free => return Err(unsigned()),
        Query::Original => return Ok(None),
        Query::Transform(transform) => transform,
    };
    let chosen = follow(context, images, transform, !matches!(verdict, Verdict::Valid));
    let judged = chosen.transform.check(&settings.limits);
    judged.map_err(|error| ImageFailure::new(400, error.to_string()))?;
    Ok(Some(chosen))
}

/// Chooses the format by Accept.
fn settled(
    context: &RequestContext<'_>,
    images: &ImageSite,
    chosen: ChosenTransform,
    frame: &Arc<Fields>,
    variant: impl Fn(Transform) -> VariantRequest,
) -> VariantOrder {
    let accepts = context.request.head.fields().get("Accept");
    let accepts = accepts.and_then(|accepts| std::str::from_utf8(accepts).ok());
    let ChosenTransform {
        transform,
        unhinted,
        by_client,
        hinted,
    } = chosen;
    let selection = VariantSelection {
        accept: transform.format == FormatChoice::Auto,
        hinted,
        ..VariantSelection::default()
    };
    let request = |transform| variant(transform).chosen_by_client(by_client);
    if !selection.accept {
        let order = |transform| VariantOrder::of(request(transform), selection, Arc::clone(frame));
        return VariantOrder {
            fallbacks: unhinted.into_iter().map(order).collect(),
            ..order(transform)
        };
    }
    let plans = plans(accepts, images, transform.still);
    let in_format = |transform: &Transform, (format, moving)| {
        let mut transform = transform.clone();
        transform.settle(format);
        transform.moving = moving;
        request(transform)
    };
    let transforms = [Some(transform), unhinted];
    let mut orders = transforms.iter().flatten().flat_map(|transform| {
        plans.iter().map(|plan| VariantOrder {
            preferred: plan.background.iter().map(|&plan| in_format(transform, plan)).collect(),
            ..VariantOrder::of(in_format(transform, plan.now), selection, Arc::clone(frame))
        })
    });
    let first = orders.next().expect("there is a plan for every client");
    VariantOrder {
        fallbacks: orders.collect(),
        ..first
    }
}

/// Formats for a client, each with a flag that refuses animations.
struct FormatPlan {
    /// Format of the first response.
    now: (Format, bool),
    /// Formats to render in the background, best first.
    background: Vec<(Format, bool)>,
}

/// Formats for this client: the best, then one for animations. The best format may hold a single picture only;
/// animations are then sent in the next one that holds them, if the client accepts one.
fn plans(accepts: Option<&str>, images: &ImageSite, still: bool) -> Vec<FormatPlan> {
    let (offered, slow) = (&images.settings.formats, images.service.background().formats());
    let (now, background) = accept::choose_with(accepts, offered, slow);
    let animated = match still {
        true => Vec::new(),
        false => accept::choose_animated(accepts, offered),
    };
    let refuses = |format: Format| !animated.is_empty() && !format.is_animated();
    let background: Vec<_> = background.into_iter().map(|format| (format, refuses(format))).collect();
    let mut others = animated.iter().copied().filter(|format| !slow.contains(format));
    let other = others.next().filter(|_| !now.is_animated());
    let with_one = other.map(|other| FormatPlan {
        now: (other, false),
        background: background
            .iter()
            .copied()
            .filter(|(format, _)| format.is_animated())
            .collect(),
    });
    let first = FormatPlan {
        now: (now, other.is_some()),
        background,
    };
    // Some pictures are never rendered as AVIF, such as enlarged or very large ones: they get another format.
    let is_avif_alone = now == Format::Avif && with_one.is_none();
    let without_avif = is_avif_alone.then(|| {
        let others: Vec<Format> = offered
            .iter()
            .copied()
            .filter(|format| *format != Format::Avif)
            .collect();
        let (now, _) = accept::choose_with(accepts, &others, slow);
        FormatPlan {
            now: (now, false),
            background: Vec::new(),
        }
    });
    std::iter::once(first).chain(with_one).chain(without_avif).collect()
}
