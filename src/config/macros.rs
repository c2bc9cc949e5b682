//! `options!`, `choices!` and `tagged!`: a type of the configuration, how it is read, and how it
//! is documented, from one declaration.

/// A section: a struct, read from a map. Each key has a type, a range in brackets if it is a
/// number, and a default; without default it is required, unless it is an `Option`.
/// `checked_by` names a function `fn(&Self, &Node, &mut Cx)` for rules over several keys.
///
/// ```text
/// options! {
///     /// Fully connected layer.
///     pub struct Linear {
///         /// Size of the last axis of the output.
///         out_features: usize [1..],
///         /// Adds a learned bias.
///         bias: bool = true,
///     }
/// }
/// ```
macro_rules! options {
    ($(#[doc = $doc:literal])* pub struct $name:ident $(checked_by $rule:path)? {
        $($(#[doc = $field_doc:literal])* $field:ident : $ty:ty $([$range:expr])? $(= $default:expr)?),*
        $(,)?
    }) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[doc = $field_doc])* pub $field: $ty,)*
        }

        impl $crate::config::decode::Decode for $name {
            fn decode(
                node: &$crate::config::node::Node,
                cx: &mut $crate::config::decode::Cx,
            ) -> Option<Self> {
                #[allow(unused_mut, reason = "a section without keys asks for none")]
                let mut reader = $crate::config::reader::MapReader::open(node, cx)?;
                $(let $field = $crate::config::macros::read_field!(
                    reader, cx, $field, $ty, [$($range)?], [$($default)?]
                );)*
                reader.finish(cx);
                let section = Self { $($field: $field?),* };
                $($rule(&section, node, cx);)?
                Some(section)
            }

            fn schema() -> $crate::config::schema::Schema {
                $crate::config::schema::Schema::Section($crate::config::schema::Section {
                    docs: $crate::config::schema::doc_text(&[$($doc),*]),
                    fields: vec![$($crate::config::schema::Field {
                        name: stringify!($field),
                        docs: $crate::config::schema::doc_text(&[$($field_doc),*]),
                        schema: $crate::config::macros::field_schema!($ty $(, $range)?),
                        presence: $crate::config::reader::presence::<$ty>(
                            $crate::config::macros::field_default!($($default)?)
                        ),
                    }),*],
                })
            }

            fn to_json(&self) -> serde_json::Value {
                #[allow(unused_mut, reason = "a section without keys adds none")]
                let mut map = serde_json::Map::new();
                $(map.insert(
                    stringify!($field).to_owned(),
                    $crate::config::decode::Decode::to_json(&self.$field),
                );)*
                serde_json::Value::Object(map)
            }
        }
    };
}

/// A default as an option. Part of `options!`.
macro_rules! field_default {
    () => {
        None
    };
    ($default:expr) => {
        Some($default)
    };
}

/// What a key takes. Part of `options!`.
macro_rules! field_schema {
    ($ty:ty) => {
        <$ty as $crate::config::decode::Decode>::schema()
    };
    ($ty:ty, $range:expr) => {
        <$ty as $crate::config::decode::Bounded>::schema_within($crate::config::schema::Range::of(
            $range,
        ))
    };
}

/// Reads a key. Part of `options!`.
macro_rules! read_field {
    ($reader:ident, $cx:ident, $field:ident, $ty:ty, [], [$($default:expr)?]) => {
        $reader.field::<$ty>(
            stringify!($field),
            &$crate::config::macros::field_schema!($ty),
            $crate::config::macros::field_default!($($default)?),
            $cx,
            <$ty as $crate::config::decode::Decode>::decode,
        )
    };
    ($reader:ident, $cx:ident, $field:ident, $ty:ty, [$range:expr], [$($default:expr)?]) => {
        $reader.field::<$ty>(
            stringify!($field),
            &$crate::config::macros::field_schema!($ty, $range),
            $crate::config::macros::field_default!($($default)?),
            $cx,
            |node, cx| {
                <$ty as $crate::config::decode::Bounded>::decode_within(
                    node,
                    $crate::config::schema::Range::of($range),
                    cx,
                )
            },
        )
    };
}

/// A choice of words: `pub enum Mode { /// Smaller is better. Min = "min", ... }`.
macro_rules! choices {
    ($(#[doc = $doc:literal])* pub enum $name:ident {
        $($(#[doc = $word_doc:literal])* $variant:ident = $word:literal),* $(,)?
    }) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[doc = $word_doc])* $variant),*
        }

        impl $name {
            /// The word it is written as.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),*
                }
            }
        }

        impl $crate::config::decode::Decode for $name {
            fn decode(
                node: &$crate::config::node::Node,
                cx: &mut $crate::config::decode::Cx,
            ) -> Option<Self> {
                let index = $crate::config::decode::decode_word(node, &[$($word),*], cx)?;
                Some([$(Self::$variant),*][index])
            }

            fn schema() -> $crate::config::schema::Schema {
                $crate::config::schema::Schema::Choice($crate::config::decode::words(&[
                    $(($word, &[$($word_doc),*])),*
                ]))
            }

            fn to_json(&self) -> serde_json::Value {
                self.word().into()
            }
        }
    };
}

/// A choice with options of its own: `pub enum Optimizer { Sgd(Sgd) = "sgd", ... }`, written as
/// `{sgd: {lr: 0.1}}`, or as the bare word where all options have defaults.
macro_rules! tagged {
    ($(#[doc = $doc:literal])* pub enum $name:ident {
        $($(#[doc = $variant_doc:literal])* $variant:ident($payload:ty) = $word:literal),* $(,)?
    }) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name {
            $($(#[doc = $variant_doc])* $variant($payload)),*
        }

        impl $name {
            /// The word it is chosen by.
            pub fn word(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $word),*
                }
            }
        }

        impl $crate::config::decode::Decode for $name {
            fn decode(
                node: &$crate::config::node::Node,
                cx: &mut $crate::config::decode::Cx,
            ) -> Option<Self> {
                $crate::config::decode::decode_tagged(node, &[$(($word, |node, cx| {
                    <$payload as $crate::config::decode::Decode>::decode(node, cx)
                        .map(Self::$variant)
                })),*], cx)
            }

            fn schema() -> $crate::config::schema::Schema {
                $crate::config::schema::Schema::Tagged(vec![
                    $($crate::config::schema::Variant {
                        word: $word,
                        options: <$payload as $crate::config::decode::Decode>::schema(),
                    }),*
                ])
            }

            fn to_json(&self) -> serde_json::Value {
                let options = match self {
                    $(Self::$variant(options) => {
                        $crate::config::decode::Decode::to_json(options)
                    })*
                };
                serde_json::Value::Object(
                    [(self.word().to_owned(), options)].into_iter().collect(),
                )
            }
        }
    };
}

pub(crate) use {choices, field_default, field_schema, options, read_field, tagged};
