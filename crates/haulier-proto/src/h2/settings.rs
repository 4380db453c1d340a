//! SETTINGS (RFC 9113 §6.5).

use super::error::ConnectionError;
use super::flow::{DEFAULT_WINDOW, MOST_WINDOW};
use super::frame::{DEFAULT_PAYLOAD, FrameType, write_small};

const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
const MAX_FRAME_SIZE: u16 = 0x5;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;
const MOST_PAYLOAD: u32 = 0xff_ffff;

/// The settings that one side asks of the other. `Default` holds before the first SETTINGS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of the dynamic table its decoder keeps.
    pub header_table_size: u32,
    pub enable_push: bool,
    /// Streams the other side may have open; no limit by default.
    pub max_concurrent_streams: u32,
    /// Bytes of a new stream's window.
    pub initial_window_size: u32,
    /// Largest payload it takes, bytes.
    pub max_frame_size: u32,
    /// Largest list of fields it takes, bytes with 32 a field; advisory.
    pub max_header_list_size: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            header_table_size: 4096,
            enable_push: true,
            max_concurrent_streams: u32::MAX,
            initial_window_size: DEFAULT_WINDOW,
            max_frame_size: DEFAULT_PAYLOAD,
            max_header_list_size: u32::MAX,
        }
    }
}

impl Settings {
    /// Applies a SETTINGS payload; unknown settings are ignored.
    ///
    /// # Errors
    /// A payload that is no list of settings, or a value out of range (RFC 9113 §6.5.2).
    pub fn apply(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        let (entries, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(ConnectionError::frame_size("SETTINGS of a broken length"));
        }
        for &[i0, i1, v0, v1, v2, v3] in entries {
            self.set(u16::from_be_bytes([i0, i1]), u32::from_be_bytes([v0, v1, v2, v3]))?;
        }
        Ok(())
    }

    fn set(&mut self, setting: u16, value: u32) -> Result<(), ConnectionError> {
        match setting {
            HEADER_TABLE_SIZE => self.header_table_size = value,
            ENABLE_PUSH if value > 1 => {
                return Err(ConnectionError::protocol("SETTINGS_ENABLE_PUSH is neither 0 nor 1"));
            }
            ENABLE_PUSH => self.enable_push = value == 1,
            MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = value,
            INITIAL_WINDOW_SIZE if i64::from(value) > MOST_WINDOW => {
                return Err(ConnectionError::flow_control(
                    "SETTINGS_INITIAL_WINDOW_SIZE out of range",
                ));
            }
            INITIAL_WINDOW_SIZE => self.initial_window_size = value,
            MAX_FRAME_SIZE if !(DEFAULT_PAYLOAD..=MOST_PAYLOAD).contains(&value) => {
                return Err(ConnectionError::protocol("SETTINGS_MAX_FRAME_SIZE out of range"));
            }
            MAX_FRAME_SIZE => self.max_frame_size = value,
            MAX_HEADER_LIST_SIZE => self.max_header_list_size = value,
            _ => {}
        }
        Ok(())
    }

    /// Appends a SETTINGS frame with the settings that differ from the default.
    pub fn write(&self, out: &mut Vec<u8>) {
        let default = Self::default();
        let mut payload = Vec::with_capacity(36);
        let mut add = |setting: u16, value: u32, default: u32| {
            if value != default {
                payload.extend_from_slice(&setting.to_be_bytes());
                payload.extend_from_slice(&value.to_be_bytes());
            }
        };
        add(HEADER_TABLE_SIZE, self.header_table_size, default.header_table_size);
        add(ENABLE_PUSH, u32::from(self.enable_push), u32::from(default.enable_push));
        add(
            MAX_CONCURRENT_STREAMS,
            self.max_concurrent_streams,
            default.max_concurrent_streams,
        );
        add(
            INITIAL_WINDOW_SIZE,
            self.initial_window_size,
            default.initial_window_size,
        );
        add(MAX_FRAME_SIZE, self.max_frame_size, default.max_frame_size);
        add(
            MAX_HEADER_LIST_SIZE,
            self.max_header_list_size,
            default.max_header_list_size,
        );
        write_small(out, FrameType::Settings, 0, 0, &payload);
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::ErrorCode;
    use super::super::frame::HEAD_LENGTH;
    use super::*;

    #[test]
    fn settings_come_back_from_their_frame() {
        let settings = Settings {
            header_table_size: 0,
            enable_push: false,
            max_concurrent_streams: 100,
            initial_window_size: 65_536,
            max_frame_size: 20_000,
            max_header_list_size: 32_768,
        };
        let mut out = Vec::new();
        settings.write(&mut out);
        let mut back = Settings::default();
        back.apply(&out[HEAD_LENGTH..]).expect("our own settings");
        assert_eq!(back, settings);
    }

    #[test]
    fn values_out_of_range_are_refused_with_their_code() {
        for (payload, code) in [
            (&[0, 2, 0, 0, 0, 2][..], ErrorCode::PROTOCOL_ERROR),
            (&[0, 4, 0x80, 0, 0, 0], ErrorCode::FLOW_CONTROL_ERROR),
            (&[0, 5, 0, 0, 0x3f, 0xff], ErrorCode::PROTOCOL_ERROR),
            (&[0, 5, 1, 0, 0, 0], ErrorCode::PROTOCOL_ERROR),
            (&[0, 1, 0, 0, 0], ErrorCode::FRAME_SIZE_ERROR),
        ] {
            let error = Settings::default().apply(payload).expect_err("out of range");
            assert_eq!(error.code, code);
        }
    }

    #[test]
    fn unknown_settings_are_ignored() {
        let mut settings = Settings::default();
        assert_eq!(settings.apply(&[0x0a, 0x0a, 1, 2, 3, 4]), Ok(()));
        assert_eq!(settings, Settings::default());
    }
}
