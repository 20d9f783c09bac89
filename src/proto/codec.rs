//! Messages on their way to the wire, each in a buffer of its own size.
//!
//! The usual codec lets the buffer grow while it writes: what follows the bytes of a large message then doubles it, which
//! costs a copy and, for as long as the message waits for its reader, as much memory again.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

/// Bytes that a buffer has before the size of its first message is known.
const BLANK: usize = 64;
/// A message as large as this is sent by itself; smaller ones that are ready go together.
const TOGETHER: usize = 32 << 10;

/// The codec of all calls (`tests/proto.rs` says so).
#[derive(Debug)]
pub struct Exact<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Exact<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + 'static, U: Message + Default + 'static> Codec for Exact<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = Writer<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        Writer(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::default()
    }
}

/// Writes messages.
#[derive(Debug)]
pub struct Writer<T>(PhantomData<T>);

impl<T: Message> Encoder for Writer<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(message.encoded_len());
        message.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BLANK, TOGETHER)
    }
}
