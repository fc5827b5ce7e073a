//! Attributes (RFC 8881 §5.8) and sets of them.

use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use crate::codec::{numbers, structure};

/// Words of a bitmap that mean something: no attribute has a number above.
const WORDS: usize = 3;
/// Longest values of attributes that are read.
const VALUES_BYTES_MAX: usize = 64 << 10;

numbers! {
    /// Number of an attribute.
    pub enum Attribute4, "attribute" {
        /// Which attributes the object has.
        SupportedAttrs = 0,
        /// What it is.
        Type = 1,
        /// Whether handles may expire.
        FhExpireType = 2,
        /// Another number after each change.
        Change = 3,
        /// Length in bytes.
        Size = 4,
        /// Whether the file system has hard links.
        LinkSupport = 5,
        /// Whether it has symbolic links.
        SymlinkSupport = 6,
        /// Whether the object has named attributes.
        NamedAttr = 7,
        /// Which file system it is on.
        FsId = 8,
        /// Whether two handles are two objects.
        UniqueHandles = 9,
        /// Seconds of a lease.
        LeaseTime = 10,
        /// Why READDIR could not tell the others.
        RdattrError = 11,
        /// Access control list.
        Acl = 12,
        /// Which entries of lists are supported.
        AclSupport = 13,
        /// Whether the file has been archived.
        Archive = 14,
        /// Whether times can be set.
        CanSetTime = 15,
        /// Whether names that differ in case alone are one.
        CaseInsensitive = 16,
        /// Whether the case of names is kept.
        CasePreserving = 17,
        /// Whether only privileged callers may give files away.
        ChownRestricted = 18,
        /// Its handle.
        FileHandle = 19,
        /// Its number in the file system.
        FileId = 20,
        /// File slots that the caller may use.
        FilesAvail = 21,
        /// Free file slots.
        FilesFree = 22,
        /// All file slots.
        FilesTotal = 23,
        /// Where else the file system is.
        FsLocations = 24,
        /// Whether it is hidden.
        Hidden = 25,
        /// Whether all objects of the file system have the same limits.
        Homogeneous = 26,
        /// Largest size of a file.
        MaxFileSize = 27,
        /// Most links.
        MaxLink = 28,
        /// Longest name.
        MaxName = 29,
        /// Largest READ.
        MaxRead = 30,
        /// Largest WRITE.
        MaxWrite = 31,
        /// Type of its contents.
        MimeType = 32,
        /// Permissions.
        Mode = 33,
        /// Whether too long names are refused rather than cut.
        NoTrunc = 34,
        /// Hard links.
        NumLinks = 35,
        /// Owner.
        Owner = 36,
        /// Group.
        OwnerGroup = 37,
        /// Bytes beyond which the quota refuses.
        QuotaAvailHard = 38,
        /// Bytes beyond which the quota warns.
        QuotaAvailSoft = 39,
        /// Bytes that count for the quota.
        QuotaUsed = 40,
        /// Device of a device node.
        RawDev = 41,
        /// Bytes that the caller may use.
        SpaceAvail = 42,
        /// Free bytes.
        SpaceFree = 43,
        /// All bytes.
        SpaceTotal = 44,
        /// Bytes that the object uses.
        SpaceUsed = 45,
        /// Whether it is a file of the system.
        System = 46,
        /// Last read.
        TimeAccess = 47,
        /// Sets the time of the last read.
        TimeAccessSet = 48,
        /// Last backup.
        TimeBackup = 49,
        /// When it was made.
        TimeCreate = 50,
        /// Smallest difference of times.
        TimeDelta = 51,
        /// Last change of attributes.
        TimeMetadata = 52,
        /// Last change of the data.
        TimeModify = 53,
        /// Sets the time of the last change of the data.
        TimeModifySet = 54,
        /// Its number in the file system that it is mounted in.
        MountedOnFileId = 55,
        /// Which attributes an exclusive create can set.
        SuppAttrExclCreat = 75,
        /// What ranges of CLONE are multiples of, in bytes (RFC 7862 §12.2).
        CloneBlkSize = 77,
        /// Bytes that would be free if it were removed.
        SpaceFreed = 78,
        /// How the change attribute changes.
        ChangeAttrType = 79,
        /// Label of mandatory access control.
        SecLabel = 80,
        /// Permissions of what is made, and which of them a list that it inherits makes no use of
        /// (RFC 8275).
        ModeUmask = 81,
        /// Whether it can have extended attributes (RFC 8276).
        XattrSupport = 82,
        /// What OPEN takes (RFC 9754 §3).
        OpenArguments = 86,
    }
}

/// A set of attributes (`bitmap4`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bitmap4 {
    words: [u32; WORDS],
    /// Whether one is in it whose number is above all that are known.
    has_more: bool,
}

impl Bitmap4 {
    /// None.
    pub const EMPTY: Self = Self { words: [0; WORDS], has_more: false };

    /// A set of these.
    pub const fn of(attributes: &[Attribute4]) -> Self {
        let mut words = [0; WORDS];
        let mut index = 0;
        while index < attributes.len() {
            let number = attributes[index] as u32;
            words[(number / 32) as usize] |= 1 << (number % 32);
            index += 1;
        }
        Self { words, has_more: false }
    }

    /// A set of the attributes with these bits.
    pub const fn from_words(words: [u32; WORDS]) -> Self {
        Self { words, has_more: false }
    }

    /// Its words, the lowest numbers first.
    pub fn words(&self) -> [u32; WORDS] {
        self.words
    }

    /// Whether an attribute is in it.
    #[inline]
    pub const fn has(&self, attribute: Attribute4) -> bool {
        let number = attribute as u32;
        self.words[(number / 32) as usize] >> (number % 32) & 1 != 0
    }

    /// Whether any of another set is in it.
    pub fn has_any(&self, other: &Self) -> bool {
        self.words.iter().zip(other.words).any(|(one, other)| one & other != 0)
    }

    /// Those that are in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut words = self.words;
        for (word, other) in words.iter_mut().zip(other.words) {
            *word &= other;
        }
        Self { words, has_more: self.has_more && other.has_more }
    }

    /// Those that are in one or the other.
    #[must_use]
    pub const fn or(&self, other: &Self) -> Self {
        let mut words = self.words;
        let mut index = 0;
        while index < WORDS {
            words[index] |= other.words[index];
            index += 1;
        }
        Self { words, has_more: self.has_more || other.has_more }
    }

    /// Those that are not in the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut words = self.words;
        for (word, other) in words.iter_mut().zip(other.words) {
            *word &= !other;
        }
        Self { words, has_more: self.has_more }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        !self.has_more && self.words == [0; WORDS]
    }
}

impl<'a> Decode<'a> for Bitmap4 {
    /// A bitmap of any length: of what lies above the known numbers only that it is there is kept.
    #[inline]
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        let length = r.u32()? as usize;
        let mut bitmap = Self::EMPTY;
        for word in bitmap.words.iter_mut().take(length) {
            *word = r.u32()?;
        }
        for _ in WORDS..length {
            bitmap.has_more |= r.u32()? != 0;
        }
        Ok(bitmap)
    }
}

impl Encode for Bitmap4 {
    /// As few words as are needed. What was above the known numbers is one bit there.
    #[inline]
    fn encode(&self, w: &mut Writer<'_>) {
        if self.has_more {
            w.u32(WORDS as u32 + 1);
            for word in self.words {
                w.u32(word);
            }
            return w.u32(1);
        }
        let length = self.words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        w.u32(length as u32);
        for word in self.words.iter().take(length) {
            w.u32(*word);
        }
    }
}

/// What the arguments of OPEN may be (`open_arguments4`, RFC 9754 §3): each a set of numbers, of which those up to 31
/// are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenArguments4 {
    /// 1: to read, 2: to write, 3: both.
    pub share_access: u32,
    /// What others may be denied: 0: nothing, 1: reading, 2: writing, 3: both.
    pub share_deny: u32,
    /// Wishes, by their bits of `share_access` divided by 256, and from 16 on by the bit's number.
    pub share_access_want: u32,
    /// `open_claim_type4`.
    pub open_claim: u32,
    /// `createmode4`.
    pub create_mode: u32,
}

impl OpenArguments4 {
    fn sets(&self) -> [u32; 5] {
        let Self { share_access, share_deny, share_access_want, open_claim, create_mode } = *self;
        [share_access, share_deny, share_access_want, open_claim, create_mode]
    }
}

impl<'a> Decode<'a> for OpenArguments4 {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        let mut sets = [0; 5];
        for set in &mut sets {
            for index in 0..r.u32()? {
                let word = r.u32()?;
                if index == 0 {
                    *set = word;
                }
            }
        }
        let [share_access, share_deny, share_access_want, open_claim, create_mode] = sets;
        Ok(Self { share_access, share_deny, share_access_want, open_claim, create_mode })
    }
}

impl Encode for OpenArguments4 {
    fn encode(&self, w: &mut Writer<'_>) {
        for set in self.sets() {
            w.u32(u32::from(set != 0));
            if set != 0 {
                w.u32(set);
            }
        }
    }
}

structure! {
    /// Attributes with their values (`fattr4`).
    #[derive(Copy)]
    pub struct Fattr4<'a> {
        /// Which.
        pub attrmask: Bitmap4,
        /// Their values, in the order of their numbers.
        pub attr_vals: &'a [u8]; max VALUES_BYTES_MAX,
    }
}
