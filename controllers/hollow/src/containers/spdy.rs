//! The part of SPDY/3.1 that clients of `exec` use: streams with headers, data and pings.
//!
//! Headers of the client are compressed with the dictionary of the protocol; the server
//! sends headers that need no dictionary. The sizes of frames and headers and the number
//! of headers are bounded.

use std::collections::HashMap;
use std::io;
use std::sync::LazyLock;

use flate2::{Decompress, FlushDecompress};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const FIN: u8 = 1;
const VERSION: u16 = 0x8003;
/// The largest payload of a frame and the largest decompressed header block in bytes, and
/// the most headers of a block.
const MAX_FRAME_BYTES: usize = 1 << 20;
const MAX_HEADER_BLOCK_BYTES: usize = 64 << 10;
const MAX_HEADERS: u32 = 64;

/// The words of the dictionary; in the dictionary each follows its length (SPDY protocol,
/// draft 3, section 2.6.10.1).
const DICTIONARY_WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding \
    accept-language accept-ranges age allow authorization cache-control connection content-base \
    content-encoding content-language content-length content-location content-md5 content-range \
    content-type date etag expect expires from host if-match if-modified-since if-none-match \
    if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate \
    proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url \
    public set-cookie keep-alive origin";
/// The rest of the dictionary.
const DICTIONARY_TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized\
    403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
    Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT\
    chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,\
    text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for name in DICTIONARY_WORDS.split_ascii_whitespace() {
        let name = name.replace('_', " ");
        all.extend((name.len() as u32).to_be_bytes());
        all.extend(name.as_bytes());
    }
    all.extend(DICTIONARY_TAIL.as_bytes());
    all
});

/// A frame of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SpdyFrame {
    Open {
        stream: u32,
        headers: HashMap<String, String>,
    },
    Data {
        stream: u32,
        data: Vec<u8>,
        last: bool,
    },
    /// A ping, which the server sends back.
    Ping(u32),
    /// The client resets a stream.
    Reset(u32),
    /// The client closes the connection (GOAWAY).
    GoAway,
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("SPDY: {what}"))
}

/// Reads frames.
pub(super) struct SpdyReader<R> {
    from: R,
    inflate: Decompress,
    /// Whether the zlib header of the compressed headers was read.
    started: bool,
}

impl<R: AsyncRead + Unpin> SpdyReader<R> {
    pub(super) fn new(from: R) -> io::Result<Self> {
        // The library does not support dictionaries: the dictionary is decompressed first,
        // as a stored block, so that later blocks can refer to it.
        let mut inflate = Decompress::new(false);
        let length = DICTIONARY.len() as u16;
        let mut stored = vec![0];
        stored.extend(length.to_le_bytes());
        stored.extend((!length).to_le_bytes());
        stored.extend(&*DICTIONARY);
        let mut out = Vec::with_capacity(MAX_HEADER_BLOCK_BYTES);
        inflate
            .decompress_vec(&stored, &mut out, FlushDecompress::Sync)
            .map_err(|_| malformed("dictionary"))?;
        Ok(Self {
            from,
            inflate,
            started: false,
        })
    }

    /// The next frame; `None` when the client has closed the connection. Frames of other
    /// types are skipped.
    pub(super) async fn next(&mut self) -> io::Result<Option<SpdyFrame>> {
        loop {
            let mut head = [0; 8];
            match self.from.read_exact(&mut head).await {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                read => read?,
            };
            let [a, b, c, d, flags, length @ ..] = head;
            let length = u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
            if length > MAX_FRAME_BYTES {
                return Err(malformed("a frame is too large"));
            }
            let mut payload = vec![0; length];
            self.from.read_exact(&mut payload).await?;
            if a & 0x80 == 0 {
                return Ok(Some(SpdyFrame::Data {
                    stream: u32::from_be_bytes([a, b, c, d]),
                    data: payload,
                    last: flags & FIN != 0,
                }));
            }
            let word = |at: usize| -> io::Result<u32> {
                let word = payload.get(at..at + 4).and_then(|w| w.try_into().ok());
                word.map(u32::from_be_bytes)
                    .ok_or_else(|| malformed("a frame is too short"))
            };
            return Ok(Some(match u16::from_be_bytes([c, d]) {
                SYN_STREAM => SpdyFrame::Open {
                    stream: word(0)?,
                    headers: self.headers(payload.get(10..).unwrap_or_default())?,
                },
                RST_STREAM => SpdyFrame::Reset(word(0)?),
                PING => SpdyFrame::Ping(word(0)?),
                GOAWAY => SpdyFrame::GoAway,
                _ => continue,
            }));
        }
    }

    fn headers(&mut self, packed: &[u8]) -> io::Result<HashMap<String, String>> {
        // The zlib header: two bytes, and the checksum of the dictionary.
        let packed = match self.started {
            true => packed,
            false => packed.get(6..).ok_or_else(|| malformed("no headers"))?,
        };
        self.started = true;
        let mut block = Vec::with_capacity(MAX_HEADER_BLOCK_BYTES);
        let before = self.inflate.total_in();
        self.inflate
            .decompress_vec(packed, &mut block, FlushDecompress::Sync)
            .map_err(|_| malformed("headers"))?;
        if self.inflate.total_in() - before != packed.len() as u64 {
            return Err(malformed("headers are too large"));
        }
        let mut rest = block.as_slice();
        let count = number(&mut rest)?;
        if count > MAX_HEADERS {
            return Err(malformed("too many headers"));
        }
        let mut headers = HashMap::new();
        for _ in 0..count {
            let (name, value) = (text(&mut rest)?, text(&mut rest)?);
            headers.insert(name.to_ascii_lowercase(), value);
        }
        Ok(headers)
    }
}

fn number(rest: &mut &[u8]) -> io::Result<u32> {
    let (word, after) = rest
        .split_first_chunk()
        .ok_or_else(|| malformed("headers are cut off"))?;
    *rest = after;
    Ok(u32::from_be_bytes(*word))
}

fn text(rest: &mut &[u8]) -> io::Result<String> {
    let length = number(rest)? as usize;
    let (text, after) = rest
        .split_at_checked(length)
        .ok_or_else(|| malformed("headers are cut off"))?;
    *rest = after;
    String::from_utf8(text.to_vec()).map_err(|_| malformed("a header is not text"))
}

/// Writes frames.
pub(super) struct SpdyWriter<W> {
    to: W,
    started: bool,
}

impl<W: AsyncWrite + Unpin> SpdyWriter<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, started: false }
    }

    async fn control(&mut self, kind: u16, payload: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(8 + payload.len());
        frame.extend(VERSION.to_be_bytes());
        frame.extend(kind.to_be_bytes());
        frame.extend((payload.len() as u32).to_be_bytes());
        frame.extend(payload);
        self.to.write_all(&frame).await?;
        self.to.flush().await
    }

    /// Accepts a stream, without headers.
    pub(super) async fn accept(&mut self, stream: u32) -> io::Result<()> {
        let mut payload = stream.to_be_bytes().to_vec();
        if !self.started {
            payload.extend([0x78, 0x01]);
            self.started = true;
        }
        // A stored block of four bytes (the number of headers) and an empty block, which
        // makes clients flush their decompressor.
        payload.extend([0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0]);
        payload.extend([0, 0, 0, 0xff, 0xff]);
        self.control(SYN_REPLY, &payload).await
    }

    pub(super) async fn pong(&mut self, id: u32) -> io::Result<()> {
        self.control(PING, &id.to_be_bytes()).await
    }

    pub(super) async fn data(&mut self, stream: u32, data: &[u8], last: bool) -> io::Result<()> {
        let mut head = stream.to_be_bytes().to_vec();
        let length = (data.len() as u32).to_be_bytes();
        head.extend([u8::from(last), length[1], length[2], length[3]]);
        self.to.write_all(&head).await?;
        self.to.write_all(data).await?;
        self.to.flush().await
    }

    pub(super) async fn close(&mut self) -> io::Result<()> {
        self.to.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adler32(bytes: &[u8]) -> u32 {
        let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
            let a = (a + u32::from(*byte)) % 65521;
            (a, (b + a) % 65521)
        });
        b << 16 | a
    }

    /// The checksum by which clients refer to the dictionary.
    #[test]
    fn the_dictionary_is_the_one_of_the_protocol() {
        assert_eq!(
            (DICTIONARY.len(), adler32(&DICTIONARY)),
            (1423, 0xe3c6_a7c2)
        );
    }

    #[tokio::test]
    async fn frames_are_read_until_a_malformed_one() {
        // `streamtype: error`, stored.
        let block = [
            &1u32.to_be_bytes()[..],
            &10u32.to_be_bytes(),
            b"streamtype",
            &5u32.to_be_bytes(),
            b"error",
        ]
        .concat();
        let length = block.len() as u16;
        let stored = [
            &[0][..],
            &length.to_le_bytes(),
            &(!length).to_le_bytes(),
            &block,
        ]
        .concat();
        let open = |stream: u8, first: bool| {
            let prefix: &[u8] = if first {
                &[0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2]
            } else {
                &[]
            };
            let payload = [&[0, 0, 0, stream, 0, 0, 0, 0, 0, 0], prefix, &stored].concat();
            let mut frame = vec![0x80, 3, 0, 1];
            frame.extend((payload.len() as u32).to_be_bytes());
            [frame, payload].concat()
        };
        let settings = [0x80, 3, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0];
        let data = [0, 0, 0, 3, 1, 0, 0, 2, b'h', b'i'];
        let all = [&open(1, true)[..], &settings, &open(3, false), &data].concat();
        let mut reader = SpdyReader::new(&all[..]).unwrap();
        for expected in [1, 3] {
            let Some(SpdyFrame::Open { stream, headers }) = reader.next().await.unwrap() else {
                panic!("no stream");
            };
            assert_eq!(
                (stream, headers["streamtype"].as_str()),
                (expected, "error")
            );
        }
        let last = reader.next().await.unwrap();
        assert_eq!(
            last,
            Some(SpdyFrame::Data {
                stream: 3,
                data: b"hi".to_vec(),
                last: true
            })
        );
        assert_eq!(reader.next().await.unwrap(), None);
        let huge = [0, 0, 0, 1, 0, 0xff, 0xff, 0xff];
        assert!(SpdyReader::new(&huge[..]).unwrap().next().await.is_err());
    }
}
