//! Types of message fields, and the macros for tables of fields.

pub(crate) use crate::protocol::reader::{DecodeError, DecodeFault, MessageVersion, Reader};
pub(crate) use crate::protocol::writer::Writer;

/// A type that can be read from and written to a message.
pub trait Wire<'a>: Sized {
    /// Reads a value.
    ///
    /// # Errors
    /// [`DecodeError`].
    fn read(from: &mut Reader<'a>, version: MessageVersion) -> Result<Self, DecodeError>;

    /// Writes the value.
    fn write(&self, to: &mut Writer, version: MessageVersion);
}

/// A message: the fields of its versions, from Kafka's table.
pub trait Message<'a>: Wire<'a> {
    /// The API key of the request or response; `None` for other messages.
    const KEY: Option<i16>;
    /// The versions in the table.
    const VERSIONS: std::ops::RangeInclusive<i16>;
    /// The first version with the flexible encoding.
    const FLEXIBLE: i16;

    /// Returns a version of the message; `None` if the table does not have it.
    fn version(number: i16) -> Option<MessageVersion> {
        let flexible = number >= Self::FLEXIBLE;
        Self::VERSIONS
            .contains(&number)
            .then_some(MessageVersion { number, flexible })
    }
}

/// A UUID, in 16 bytes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Uuid(pub [u8; 16]);

/// Record batches, in memory or in files.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Records<'a> {
    /// Null.
    #[default]
    Null,
    /// Bytes in memory.
    Bytes(&'a [u8]),
    /// The number of bytes for which the message gets a gap.
    Elsewhere(u32),
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl<'a> Wire<'a> for $number {
            fn read(from: &mut Reader<'a>, _version: MessageVersion) -> Result<Self, DecodeError> {
                Ok(<$number>::from_be_bytes(from.array()?))
            }

            fn write(&self, to: &mut Writer, _version: MessageVersion) {
                to.put(&self.to_be_bytes());
            }
        }
    )*};
}

numbers!(i8, i16, u16, i32, i64, f64);

impl<'a> Wire<'a> for bool {
    fn read(from: &mut Reader<'a>, _version: MessageVersion) -> Result<Self, DecodeError> {
        let [byte] = from.array()?;
        Ok(byte != 0)
    }

    fn write(&self, to: &mut Writer, _version: MessageVersion) {
        to.put(&[u8::from(*self)]);
    }
}

impl<'a> Wire<'a> for Uuid {
    fn read(from: &mut Reader<'a>, _version: MessageVersion) -> Result<Self, DecodeError> {
        from.array().map(Uuid)
    }

    fn write(&self, to: &mut Writer, _version: MessageVersion) {
        to.put(&self.0);
    }
}

impl<'a> Wire<'a> for &'a str {
    fn read(from: &mut Reader<'a>, version: MessageVersion) -> Result<Self, DecodeError> {
        let text = from.string(version)?;
        text.ok_or_else(|| from.error(DecodeFault::Null))
    }

    fn write(&self, to: &mut Writer, version: MessageVersion) {
        to.string_length(version, Some(self.len()));
        to.put(self.as_bytes());
    }
}

impl<'a> Wire<'a> for Option<&'a str> {
    fn read(from: &mut Reader<'a>, version: MessageVersion) -> Result<Self, DecodeError> {
        from.string(version)
    }

    fn write(&self, to: &mut Writer, version: MessageVersion) {
        match self {
            Some(text) => text.write(to, version),
            None => to.string_length(version, None),
        }
    }
}

impl<'a> Wire<'a> for &'a [u8] {
    fn read(from: &mut Reader<'a>, version: MessageVersion) -> Result<Self, DecodeError> {
        let bytes = from.bytes(version)?;
        bytes.ok_or_else(|| from.error(DecodeFault::Null))
    }

    fn write(&self, to: &mut Writer, version: MessageVersion) {
        to.length_of(version, Some(self.len()));
        to.put(self);
    }
}

impl<'a> Wire<'a> for Option<&'a [u8]> {
    fn read(from: &mut Reader<'a>, version: MessageVersion) -> Result<Self, DecodeError> {
        from.bytes(version)
    }

    fn write(&self, to: &mut Writer, version: MessageVersion) {
        match self {
            Some(bytes) => bytes.write(to, version),
            None => to.length_of(version, None),
        }
    }
}

impl<'a> Wire<'a> for Records<'a> {
    fn read(from: &mut Reader<'a>, version: MessageVersion) -> Result<Self, DecodeError> {
        Ok(from.bytes(version)?.map_or(Records::Null, Records::Bytes))
    }

    fn write(&self, to: &mut Writer, version: MessageVersion) {
        match self {
            Records::Null => to.length_of(version, None),
            Records::Bytes(bytes) => bytes.write(to, version),
            Records::Elsewhere(length) => {
                to.length_of(version, Some(*length as usize));
                to.gap(*length);
            }
        }
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Vec<T> {
    fn read(from: &mut Reader<'a>, version: MessageVersion) -> Result<Self, DecodeError> {
        let elements = from.elements(version, |from| T::read(from, version))?;
        elements.ok_or_else(|| from.error(DecodeFault::Null))
    }

    fn write(&self, to: &mut Writer, version: MessageVersion) {
        to.length_of(version, Some(self.len()));
        self.iter().for_each(|element| element.write(to, version));
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Option<Vec<T>> {
    fn read(from: &mut Reader<'a>, version: MessageVersion) -> Result<Self, DecodeError> {
        from.elements(version, |from| T::read(from, version))
    }

    fn write(&self, to: &mut Writer, version: MessageVersion) {
        match self {
            Some(elements) => elements.write(to, version),
            None => to.length_of(version, None),
        }
    }
}

/// A structure within a message.
pub trait Structure {}

impl<'a, T: Wire<'a> + Structure> Wire<'a> for Option<T> {
    fn read(from: &mut Reader<'a>, version: MessageVersion) -> Result<Self, DecodeError> {
        match i8::read(from, version)? {
            ..0 => Ok(None),
            _ => T::read(from, version).map(Some),
        }
    }

    fn write(&self, to: &mut Writer, version: MessageVersion) {
        match self {
            Some(structure) => {
                1i8.write(to, version);
                structure.write(to, version);
            }
            None => (-1i8).write(to, version),
        }
    }
}

/// Defines a structure of a message from a table: name, type and versions of each field, the
/// versions in which it may be null if not all, and its value in other versions. Tagged fields are
/// omitted if they have that value.
macro_rules! table {
    (
        $(#[$meta:meta])*
        pub struct $table:ident $(<$life:lifetime>)? {
            $($field:ident: $kind:ty => $versions:expr
                $(, null $nullable:expr)?
                $(, or $default:expr)?
                $(, tag $tag:literal or $usual:expr)?;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        #[expect(missing_docs, reason = "they are Kafka's")]
        pub struct $table $(<$life>)? {
            $(pub $field: $kind,)*
        }

        impl $(<$life>)? Default for $table $(<$life>)? {
            fn default() -> Self {
                Self { $($field: default!($($usual)?; $($default)?),)* }
            }
        }

        #[cfg(test)]
        impl $(<$life>)? crate::protocol::tests::Sample for $table $(<$life>)? {
            fn sample(random: &mut crate::protocol::tests::Random) -> Self {
                Self { $($field: crate::protocol::tests::Sample::sample(random),)* }
            }
        }

        impl $(<$life>)? Structure for $table $(<$life>)? {}

        impl<'a> Wire<'a> for $table $(<$life>)? {
            #[allow(unused_mut, unused_variables)]
            fn read(from: &mut Reader<'a>, version: MessageVersion) -> Result<Self, DecodeError> {
                let mut table = Self::default();
                $(
                    let is_there = !is_tagged!($($tag)?) && ($versions).contains(&version.number);
                    if is_there {
                        table.$field = Wire::read(from, version)?;
                        $(if table.$field.is_none() && !($nullable).contains(&version.number) {
                            return Err(from.error(DecodeFault::Null));
                        })?
                    }
                )*
                if version.flexible {
                    from.tagged(|tag, from| {
                        $($(
                            if tag == $tag && ($versions).contains(&version.number) {
                                table.$field = Wire::read(from, version)?;
                                return Ok(true);
                            }
                        )?)*
                        Ok(false)
                    })?;
                }
                Ok(table)
            }

            #[allow(unused_mut, unused_variables)]
            fn write(&self, to: &mut Writer, version: MessageVersion) {
                $(
                    let is_there = !is_tagged!($($tag)?) && ($versions).contains(&version.number);
                    if is_there {
                        self.$field.write(to, version);
                    }
                )*
                if version.flexible {
                    let mut tagged: Vec<(u32, Writer)> = Vec::new();
                    $($(
                        let usual: $kind = $usual;
                        if ($versions).contains(&version.number) && self.$field != usual {
                            let mut field = Writer::default();
                            self.$field.write(&mut field, version);
                            tagged.push(($tag, field));
                        }
                    )?)*
                    tagged.sort_unstable_by_key(|(tag, _)| *tag);
                    to.tagged(&tagged);
                }
            }
        }
    };
}

macro_rules! default {
    (;) => {
        Default::default()
    };
    ($usual:expr;) => {
        $usual
    };
    (; $default:expr) => {
        $default
    };
}

macro_rules! is_tagged {
    () => {
        false
    };
    ($tag:literal) => {
        true
    };
}

/// Implements `Message` for the root table of a message.
macro_rules! message {
    ($table:ident $(<$life:lifetime>)?, $key:expr, $versions:expr, $flexible:expr) => {
        impl<'a> Message<'a> for $table $(<$life>)? {
            const KEY: Option<i16> = $key;
            const VERSIONS: std::ops::RangeInclusive<i16> = $versions;
            const FLEXIBLE: i16 = $flexible;
        }
    };
}

pub(crate) use {default, is_tagged, message, table};
