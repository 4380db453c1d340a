//! The images of one site: its image service, with fields, presets and times for responses.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use haulier_http::ImageTimes;
use haulier_image::{Format, Transform};
use haulier_image_service::{ImageService, Settings, VariantRequest};
use haulier_php::WaitTimes;
use haulier_proto::field::Fields;
use haulier_store::cache::CacheKey;

use super::settings::ImageSettings;
use crate::files::FileEntry;
use crate::lock::lock;

/// The next number of a site.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The images of one site.
#[derive(Debug)]
pub struct ImageSite {
    pub(crate) settings: ImageSettings,
    pub(crate) service: Arc<ImageService>,
    /// Fields that the site sets on every response.
    fields: Fields,
    /// Fields of the responses with stored images.
    pub(crate) frame: Arc<Fields>,
    fallback: Option<Fallback>,
    times: Arc<Mutex<StepTimes>>,
    /// Unique among all sites since the start of the process.
    pub(crate) number: u64,
}

/// The image that stands in for missing ones.
#[derive(Debug)]
struct Fallback {
    content: Bytes,
    name: CacheKey,
}

type StepTimes = [WaitTimes; RenderStep::ALL.len()];

/// A step of rendering; a label in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenderStep {
    Fetch,
    Decode,
    Resize,
    Encode,
}

impl RenderStep {
    pub(crate) const ALL: [Self; 4] = [Self::Fetch, Self::Decode, Self::Resize, Self::Encode];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Decode => "decode",
            Self::Resize => "resize",
            Self::Encode => "encode",
        }
    }

    fn of(self, times: &ImageTimes) -> std::time::Duration {
        let time = match self {
            Self::Fetch => times.fetch,
            Self::Decode => times.decode,
            Self::Resize => times.resize,
            Self::Encode => times.encode,
        };
        time.unwrap_or_default()
    }
}

impl ImageSite {
    /// The images of a site with these settings.
    ///
    /// # Errors
    /// The fallback image cannot be read, or has no known format.
    pub fn new(settings: ImageSettings, service: Settings) -> io::Result<Arc<Self>> {
        let fallback = settings.fallback.as_deref().map(Fallback::read).transpose()?;
        let mut fields = Fields::new();
        for (name, value) in &settings.headers {
            fields.set(name, value);
        }
        let mut frame = fields.clone();
        if let Some(cache_control) = &settings.cache_control {
            frame.set("Cache-Control", cache_control);
        }
        let times: Arc<Mutex<StepTimes>> = Arc::default();
        let counted = Arc::clone(&times);
        Ok(Arc::new(Self {
            service: ImageService::new(service, move |times| count(&counted, times)),
            fields,
            frame: Arc::new(frame),
            fallback,
            times,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            settings,
        }))
    }

    /// The request for a variant of a file of the document root.
    pub(crate) fn variant_of_file(&self, path: &[u8], entry: &FileEntry, transform: Transform) -> VariantRequest {
        let state = entry.state();
        let etag = entry.etag.as_deref().unwrap_or(state.as_bytes());
        // The tag is equal for files of equal size and time on two machines, or one after the other; a cached variant
        // is not shared.
        let name = CacheKey::of(&[b"file", path, state.as_bytes(), etag]);
        let tag = CacheKey::of(&[b"file", path, etag]);
        VariantRequest::of_file(Arc::clone(&entry.file), name, tag, transform)
    }

    /// The fields of responses with variants of a file: clients keep them as long as the file.
    pub(crate) fn frame_of_file(&self, entry: &FileEntry) -> Fields {
        let mut frame = self.fields.clone();
        if let Some(cache_control) = entry.head.fields().get("Cache-Control") {
            frame.set("Cache-Control", cache_control);
        }
        frame
    }

    /// The request for the same variant of the fallback image, if there is one.
    pub(crate) fn fallback(&self, request: &VariantRequest) -> Option<VariantRequest> {
        let fallback = self.fallback.as_ref()?;
        Some(request.with_content(fallback.content.clone(), fallback.name))
    }

    /// The preset of this name.
    pub(crate) fn preset(&self, name: &str) -> Option<&Transform> {
        let mut presets = self.settings.presets.iter();
        presets.find(|(known, _)| known == name).map(|(_, transform)| transform)
    }

    /// True if pages request client hints.
    pub(crate) fn follows_hints(&self) -> bool {
        self.settings.client_hints
    }

    /// The image service.
    pub(crate) fn service(&self) -> &ImageService {
        &self.service
    }

    /// Times of the steps of renderings, in the order of [`RenderStep::ALL`].
    pub(crate) fn step_times(&self) -> StepTimes {
        *lock(&self.times)
    }
}

impl Fallback {
    fn read(path: &std::path::Path) -> io::Result<Self> {
        let content = Bytes::from(std::fs::read(path)?);
        if Format::of_bytes(&content).is_none() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "not an image of a known format",
            ));
        }
        let name = CacheKey::of(&[b"fallback", &content]);
        Ok(Self { content, name })
    }
}

fn count(counted: &Mutex<StepTimes>, times: &ImageTimes) {
    let mut counted = lock(counted);
    for (counted, step) in counted.iter_mut().zip(RenderStep::ALL) {
        let time = step.of(times);
        counted.classes[WaitTimes::class_of(time)] += 1;
        counted.sum += time;
    }
}
