//! Error codes of RFC 9113 §7, and the errors that end a connection.

use std::fmt;

/// The error code of a frame that ends a stream or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    pub const NO_ERROR: Self = Self(0x0);
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    pub const INTERNAL_ERROR: Self = Self(0x2);
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    pub const SETTINGS_TIMEOUT: Self = Self(0x4);
    pub const STREAM_CLOSED: Self = Self(0x5);
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    pub const REFUSED_STREAM: Self = Self(0x7);
    pub const CANCEL: Self = Self(0x8);
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    pub const CONNECT_ERROR: Self = Self(0xa);
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    pub const INADEQUATE_SECURITY: Self = Self(0xc);
    pub const HTTP_1_1_REQUIRED: Self = Self(0xd);
}

/// The name of RFC 9113 §7, or the number.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        match NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

/// A fault of the peer that ends the connection. GOAWAY with its code is in the output already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ConnectionError {
    /// The code that GOAWAY told the peer.
    pub code: ErrorCode,
    /// For the log.
    pub reason: &'static str,
}

impl ConnectionError {
    /// PROTOCOL_ERROR.
    pub(crate) const fn protocol(reason: &'static str) -> Self {
        Self {
            code: ErrorCode::PROTOCOL_ERROR,
            reason,
        }
    }

    /// FRAME_SIZE_ERROR.
    pub(crate) const fn frame_size(reason: &'static str) -> Self {
        Self {
            code: ErrorCode::FRAME_SIZE_ERROR,
            reason,
        }
    }

    /// FLOW_CONTROL_ERROR.
    pub(crate) const fn flow_control(reason: &'static str) -> Self {
        Self {
            code: ErrorCode::FLOW_CONTROL_ERROR,
            reason,
        }
    }

    /// ENHANCE_YOUR_CALM: allowed once, but too often.
    pub(crate) const fn flood(reason: &'static str) -> Self {
        Self {
            code: ErrorCode::ENHANCE_YOUR_CALM,
            reason,
        }
    }
}
