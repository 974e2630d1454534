//! Enums whose values are numbers of the protocol.

/// Defines an enum whose values are numbers of the protocol, with both conversions from one list.
macro_rules! wire_enum {
    ($(#[$meta:meta])* $name:ident: $int:ty { $($(#[$of_value:meta])* $value:ident = $number:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$of_value])* $value,)+
        }

        impl $name {
            /// Every value, by ascending number.
            pub const ALL: &[Self] = &[$(Self::$value),+];

            /// The number on the wire.
            #[inline]
            #[must_use]
            pub const fn number(self) -> $int {
                match self {
                    $(Self::$value => $number,)+
                }
            }

            /// The value of a number on the wire; `None` if the protocol has no such number here.
            #[inline]
            #[must_use]
            pub const fn from_number(number: $int) -> Option<Self> {
                match number {
                    $($number => Some(Self::$value),)+
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use wire_enum;
