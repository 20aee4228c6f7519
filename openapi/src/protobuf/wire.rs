//! The protobuf wire format: splits a message into numbered fields that borrow from it.
//! Never reads past its slice.

/// One field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireField<'a> {
    pub(super) number: u32,
    payload: WirePayload<'a>,
}

#[derive(Clone, Copy, Debug)]
enum WirePayload<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> WireField<'a> {
    pub(super) fn bytes(&self) -> Result<&'a [u8], String> {
        match self.payload {
            WirePayload::Bytes(bytes) => Ok(bytes),
            _ => Err(format!("field {} is not length-delimited", self.number)),
        }
    }

    pub(super) fn text(&self) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes()?)
            .map_err(|_| format!("field {} is not valid UTF-8", self.number))
    }

    /// Two's complement, as `int32`, `int64` and `bool` are encoded.
    pub(super) fn integer(&self) -> Result<i64, String> {
        match self.payload {
            WirePayload::Varint(value) => Ok(value.cast_signed()),
            _ => Err(format!("field {} is not a varint", self.number)),
        }
    }

    pub(super) fn double(&self) -> Result<f64, String> {
        match self.payload {
            WirePayload::Fixed64(bits) => Ok(f64::from_bits(bits)),
            WirePayload::Fixed32(bits) => Ok(f32::from_bits(bits).into()),
            _ => Err(format!(
                "field {} is not a floating-point number",
                self.number
            )),
        }
    }
}

/// Iterates over the fields of a message, in wire order. Ends after the first error.
pub(super) struct WireFieldIterator<'a> {
    rest: &'a [u8],
}

impl<'a> WireFieldIterator<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let Some((byte, rest)) = self.rest.split_first() else {
                return Err("the message ends inside a number".into());
            };
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number is longer than ten bytes".into())
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let split = usize::try_from(length)
            .ok()
            .and_then(|length| self.rest.split_at_checked(length));
        let Some((bytes, rest)) = split else {
            return Err("the message ends inside a field".into());
        };
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    fn field(&mut self) -> Result<WireField<'a>, String> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| "a field number is too large")?;
        if number == 0 {
            return Err("a field has the number 0".into());
        }
        let payload = match tag & 7 {
            0 => WirePayload::Varint(self.varint()?),
            1 => WirePayload::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                WirePayload::Bytes(self.take(length)?)
            }
            5 => WirePayload::Fixed32(u32::from_le_bytes(self.array()?)),
            wire => return Err(format!("field {number} has the unknown wire type {wire}")),
        };
        Ok(WireField { number, payload })
    }
}

impl<'a> Iterator for WireFieldIterator<'a> {
    type Item = Result<WireField<'a>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}
