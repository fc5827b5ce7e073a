//! What is not taken over of nfs-ganesha's configuration, and what that means here.

/// Parameters of an export that need not be taken over, or cannot be, with the reason. None of them keeps a client or a
/// user out.
pub(super) const OF_EXPORT: [(&str, &str); 17] = [
    ("NFS_Commit", "is not needed: what is acknowledged as stable is stable"),
    (
        "Delegations",
        "is not taken over: delegations are for the whole server, `delegations` in [server]",
    ),
    ("Attr_Expiration_Time", "is not needed: attributes are not cached"),
    ("MaxRead", "is not taken over: sizes are the server's, `transfer_bytes_max` in [server]"),
    ("MaxWrite", "is not taken over: sizes are the server's, `transfer_bytes_max` in [server]"),
    ("PrefRead", "is not taken over: sizes are the server's, `transfer_bytes_max` in [server]"),
    ("PrefWrite", "is not taken over: sizes are the server's, `transfer_bytes_max` in [server]"),
    ("PrefReaddir", "is not taken over: sizes are the server's"),
    ("Filesystem_id", "is not taken over: handles have the share's own id, and clients mount anew"),
    ("MaxOffsetWrite", "is not taken over: files may be as long as the file system permits"),
    ("MaxOffsetRead", "is not taken over: files may be as long as the file system permits"),
    ("UseCookieVerifier", "is not needed: listings go on wherever they were"),
    ("DisableReaddirPlus", "is not taken over: READDIRPLUS is served"),
    ("Trust_Readdir_Negative_Cache", "is not needed: names are not cached"),
    ("Disable_ACL", "is not taken over: ACLs are served where the file system has them"),
    ("Security_Label", "is not taken over: there are no security labels"),
    ("Tag", "is not taken over: clients mount by path"),
];

/// Blocks that say nothing of shares, with what to do instead.
pub(super) const BLOCKS: [(&str, &str); 32] = [
    (
        "NFS_CORE_PARAM",
        "`listen` in [server] for addresses and ports, `udp`, `nfs2` and `nfs4` for versions and transports",
    ),
    (
        "NFSV4",
        "`delegations`, `nfs4_owners` and `nfs4_domain` in [server]; after a kill or restart there is no grace period, after a power failure there is one",
    ),
    ("NFSv4_recovery", "nothing: what clients hold is kept in the state directory"),
    ("NFS_IP_NAME", "`negative_s` and the other keys of [names]"),
    ("NFS_KRB5", "nothing: Kerberos is not served yet"),
    ("DIRECTORY_SERVICES", "`nfs4_domain` in [server]"),
    ("NFS_DUPLICATE_REQUEST", "`reply_cache_bytes_max` and `reply_cache_history_s` in [server]"),
    ("LOG", "`log` and `log_filter` in [server]"),
    (
        "CACHEINODE",
        "nothing: files are cached by the kernel; `descriptors_max` in [server] bounds open ones",
    ),
    (
        "MDCACHE",
        "nothing: files are cached by the kernel; `descriptors_max` in [server] bounds open ones",
    ),
    ("9P", "nothing: 9P is not served"),
    ("_9P", "nothing: 9P is not served"),
    ("RPCSEC_GSS", "nothing: Kerberos is not served yet"),
    ("RADOS_KV", "nothing: what clients hold is kept in the state directory"),
    ("RADOS_URLS", "nothing: the configuration is in files"),
    ("MONITORING", "[metrics]"),
    ("VFS", "nothing: directories of this host are served as they are"),
    ("XFS", "nothing: directories of this host are served as they are"),
    ("FSAL_LIST", "nothing: directories of this host are served"),
    ("SAUNAFS", "nothing: directories of this host are served"),
    ("DS", "nothing: layouts are never given"),
    ("CEPH", "nothing: directories of this host are served"),
    ("GLUSTER", "nothing: directories of this host are served"),
    ("GPFS", "nothing: directories of this host are served"),
    ("LUSTRE", "nothing: directories of this host are served"),
    ("RGW", "nothing: directories of this host are served"),
    ("KVSFS", "nothing: directories of this host are served"),
    ("LIZARDFS", "nothing: directories of this host are served"),
    ("PROXY_V3", "nothing: directories of this host are served"),
    ("PROXY_V4", "nothing: directories of this host are served"),
    ("MEM", "nothing: directories of this host are served"),
    ("PSEUDOFS", "nothing: every client sees the directories that lead to its shares"),
];

/// Parameters of blocks that keep somebody out and cannot be said here, with what is so instead.
pub(super) const REFUSED: [(&str, &str, &str); 8] = [
    ("PSEUDOFS", "Access_Type", "every client sees the directories that lead to its shares"),
    ("PSEUDOFS", "CLIENT", "every client sees the directories that lead to its shares"),
    ("PSEUDOFS", "SecType", "every client sees the directories that lead to its shares"),
    ("PSEUDOFS", "PrivilegedPort", "every client sees the directories that lead to its shares"),
    ("VFS", "umask", "files get the modes that clients ask for"),
    ("VFS", "only_one_user", "files are served to all users who may have them"),
    ("XFS", "umask", "files get the modes that clients ask for"),
    ("XFS", "only_one_user", "files are served to all users who may have them"),
];

/// Values with which those keep nobody out.
pub(super) const HARMLESS: [&str; 5] = ["no", "false", "off", "0", "MDONLY_RO"];

/// Back ends that stand upon another.
pub(super) const STACKED: [&str; 2] = ["NULL", "MDCACHE"];

/// Back ends whose exports are directories of this host.
pub(super) const LOCAL: [&str; 2] = ["VFS", "XFS"];
