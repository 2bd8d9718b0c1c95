// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdversion

// Feature is something that some versions of envd have and others have not: an
// RPC, a field, an endpoint, a behaviour, or a bug that a client must live
// with.
type Feature int

// The features, in the order of the table.
const (
	// PollingWatcher is CreateWatcher, GetWatcherEvents and RemoveWatcher.
	PollingWatcher Feature = iota
	// RecursiveWatch is the recursive field of both watch requests.
	RecursiveWatch
	// ListDepth is the depth field of ListDir.
	ListDepth
	// ListSymlinkDir means that ListDir follows a symlink that it is given.
	ListSymlinkDir
	// MetricsBytes are the byte counts and the disk figures of GET /metrics.
	MetricsBytes
	// EntryDetails are an entry's size, mode, owner, times and symlink target.
	EntryDetails
	// LstatEntries means that Stat describes a symlink itself.
	LstatEntries
	// CwdCheck means that Start says itself that a working directory is missing.
	CwdCheck
	// SandboxEnvHonest means that E2B_SANDBOX is "false" outside Firecracker.
	SandboxEnvHonest
	// StdinField is the stdin field of Start.
	StdinField
	// InitTimestamp is the timestamp field of POST /init.
	InitTimestamp
	// PTYWithoutSize means that a PTY without a size works.
	PTYWithoutSize
	// DefaultUser means that requests need no user, and that POST /init knows
	// defaultUser and defaultWorkdir.
	DefaultUser
	// ListDirVanish means that ListDir survives a file that vanishes.
	ListDirVanish
	// LateNoSpace means that an upload fills the disk before it fails with 507.
	LateNoSpace
	// OpenInit means that POST /init checks the token itself.
	OpenInit
	// NetworkWatchRefused means that watching a network mount is an error.
	NetworkWatchRefused
	// ContentDisposition is that header of GET /files.
	ContentDisposition
	// CloseStdin is the RPC of that name.
	CloseStdin
	// FilesGzip is gzip both ways on /files, with a true Last-Modified.
	FilesGzip
	// SupplementaryGroups means that commands get their user's groups.
	SupplementaryGroups
	// ShellWrapper means that commands run through /bin/sh, nice and ionice: a
	// command that is not found exits 127, and PATH is the request's own.
	ShellWrapper
	// MakeDirDetails means that MakeDir describes the directory in full.
	MakeDirDetails
	// Compose is POST /files/compose.
	Compose
	// RawUpload is an application/octet-stream body of POST /files.
	RawUpload
	// ParentRaceFixed means that parallel uploads into a new tree do not collide.
	ParentRaceFixed
	// MetricsCache is mem_cache in GET /metrics.
	MetricsCache
	// CleanHangup means that a client may hang up while output flows.
	CleanHangup
	// InitEnvsReplace means that envVars of POST /init replace earlier ones.
	InitEnvsReplace
	// Metadata is X-Metadata-* on uploads and the metadata field of entries.
	Metadata
	// WatchEntry is the include_entry field of both watch requests.
	WatchEntry
	// WatchNetworkMounts is the allow_network_mounts field of both.
	WatchNetworkMounts
	// CleanDeadline means that a deadline before the start event is answered.
	CleanDeadline
	// ExitRetention means that Connect gives the end of a command for 30 s.
	ExitRetention
	// InitVersionHeader is X-Envd-Version on the answers of POST /init.
	InitVersionHeader

	// UnsetInputDrop is a bug: input without a kind drops the connection.
	UnsetInputDrop
	// TagLookupBug is a bug: a tag is not found while other tags are in use.
	TagLookupBug
	// KeepaliveCrash is a bug: an interval of 0 or less crashes the daemon.
	KeepaliveCrash
	// DataBeforeStartDrop is a bug: StreamInput drops the connection when data
	// comes before start.
	DataBeforeStartDrop

	featureCount
)

// Row is what the table says of a feature.
type Row struct {
	Feature Feature
	// Name is the feature's stable name for reports, in words joined by "-".
	Name string
	// Since is the first version that has it. Until is the first that has it
	// no more; zero where there is none.
	Since, Until Version
	// Element is the RPC ("process.Process/CloseStdin"), field
	// ("process.StartRequest.stdin") or endpoint ("POST /files/compose") that
	// it belongs to.
	Element string
	// Adds lists the RPCs, fields and enum values that came with it. Together with Since they
	// are the "Since envd" notes of the contract.
	Adds []string
	// Probe asks a daemon whether it has the feature; nil where that cannot be
	// asked without harm.
	Probe probe
	// Summary says what a client sees.
	Summary string
}

var table = [featureCount]Row{
	PollingWatcher:      {Name: "polling-watcher", Since: V(0, 1, 3), Element: "filesystem.Filesystem/CreateWatcher", Adds: []string{"filesystem.Filesystem/CreateWatcher", "filesystem.Filesystem/GetWatcherEvents", "filesystem.Filesystem/RemoveWatcher"}, Probe: probePollingWatcher, Summary: "polling watchers"},
	RecursiveWatch:      {Name: "recursive-watch", Since: V(0, 1, 4), Element: "filesystem.WatchDirRequest.recursive", Adds: []string{"filesystem.WatchDirRequest.recursive", "filesystem.CreateWatcherRequest.recursive"}, Summary: "recursive watches"},
	ListDepth:           {Name: "list-depth", Since: V(0, 1, 6), Element: "filesystem.ListDirRequest.depth", Adds: []string{"filesystem.ListDirRequest.depth"}, Probe: probeListDepth, Summary: "listings of more than one level"},
	ListSymlinkDir:      {Name: "list-symlink-dir", Since: V(0, 2, 2), Element: "filesystem.Filesystem/ListDir", Summary: "a symlink to a directory can be listed"},
	MetricsBytes:        {Name: "metrics-bytes", Since: V(0, 2, 4), Element: "GET /metrics", Probe: probeMetric("disk_total"), Summary: "memory in bytes and disk figures in metrics"},
	EntryDetails:        {Name: "entry-details", Since: V(0, 2, 5), Element: "filesystem.EntryInfo.size", Adds: []string{"filesystem.EntryInfo.size", "filesystem.EntryInfo.mode", "filesystem.EntryInfo.permissions", "filesystem.EntryInfo.owner", "filesystem.EntryInfo.group", "filesystem.EntryInfo.modified_time", "filesystem.EntryInfo.symlink_target"}, Probe: probeEntryDetails, Summary: "size, mode, owner, times and symlink target of entries"},
	LstatEntries:        {Name: "lstat-entries", Since: V(0, 2, 6), Element: "filesystem.Filesystem/Stat", Probe: probeLstat, Summary: "Stat describes a symlink itself"},
	CwdCheck:            {Name: "cwd-check", Since: V(0, 2, 8), Element: "process.ProcessConfig.cwd", Summary: "a missing working directory is named as such"},
	SandboxEnvHonest:    {Name: "sandbox-env", Since: V(0, 2, 11), Element: "GET /envs", Summary: "E2B_SANDBOX is false outside Firecracker"},
	StdinField:          {Name: "stdin-field", Since: V(0, 3, 0), Element: "process.StartRequest.stdin", Adds: []string{"process.StartRequest.stdin"}, Probe: probeStdinField, Summary: "commands can be started without standard input"},
	InitTimestamp:       {Name: "init-timestamp", Since: V(0, 3, 4), Element: "POST /init", Summary: "a stale init is ignored"},
	PTYWithoutSize:      {Name: "pty-without-size", Since: V(0, 3, 0), Element: "process.PTY.size", Summary: "a terminal without a size is 0 by 0"},
	DefaultUser:         {Name: "default-user", Since: V(0, 4, 0), Element: "POST /init", Probe: probeDefaultUser, Summary: "requests need no user; default user and directory"},
	ListDirVanish:       {Name: "list-dir-vanish", Since: V(0, 4, 2), Element: "filesystem.Filesystem/ListDir", Summary: "a listing survives a file that vanishes"},
	LateNoSpace:         {Name: "late-no-space", Since: V(0, 4, 3), Element: "POST /files", Summary: "507 comes when the disk is full, not before"},
	OpenInit:            {Name: "open-init", Since: V(0, 5, 0), Element: "POST /init", Summary: "init checks the token in its body"},
	NetworkWatchRefused: {Name: "network-watch-refused", Since: V(0, 5, 0), Element: "filesystem.Filesystem/WatchDir", Summary: "watching a network mount is an error"},
	ContentDisposition:  {Name: "content-disposition", Since: V(0, 5, 1), Element: "GET /files", Probe: probeContentDisposition, Summary: "downloads carry Content-Disposition"},
	CloseStdin:          {Name: "close-stdin", Since: V(0, 5, 2), Element: "process.Process/CloseStdin", Adds: []string{"process.Process/CloseStdin"}, Probe: probeCloseStdin, Summary: "standard input can be closed"},
	FilesGzip:           {Name: "files-gzip", Since: V(0, 5, 3), Element: "GET /files", Probe: probeFilesGzip, Summary: "gzip both ways and a true Last-Modified"},
	SupplementaryGroups: {Name: "supplementary-groups", Since: V(0, 5, 3), Element: "process.Process/Start", Summary: "commands have their user's groups"},
	ShellWrapper:        {Name: "shell-wrapper", Since: V(0, 5, 4), Element: "process.Process/Start", Probe: probeShellWrapper, Summary: "an unknown command exits 127, and PATH is the request's"},
	MakeDirDetails:      {Name: "make-dir-details", Since: V(0, 5, 5), Element: "filesystem.MakeDirResponse.entry", Adds: []string{"filesystem.FileType.FILE_TYPE_SYMLINK"}, Probe: probeMakeDirDetails, Summary: "MakeDir describes the directory in full"},
	Compose:             {Name: "compose", Since: V(0, 5, 5), Element: "POST /files/compose", Probe: probeCompose, Summary: "files can be joined on the server"},
	RawUpload:           {Name: "raw-upload", Since: V(0, 5, 7), Element: "POST /files", Probe: probeRawUpload, Summary: "uploads as application/octet-stream"},
	ParentRaceFixed:     {Name: "parent-race-fixed", Since: V(0, 5, 8), Element: "POST /files", Summary: "parallel uploads into a new tree do not collide"},
	MetricsCache:        {Name: "metrics-cache", Since: V(0, 5, 9), Element: "GET /metrics", Probe: probeMetric("mem_cache"), Summary: "page cache in metrics"},
	CleanHangup:         {Name: "clean-hangup", Since: V(0, 5, 19), Element: "process.Process/Start", Summary: "hanging up under output harms neither command nor daemon"},
	InitEnvsReplace:     {Name: "init-envs-replace", Since: V(0, 5, 25), Element: "POST /init", Summary: "variables replace earlier ones"},
	Metadata:            {Name: "metadata", Since: V(0, 6, 2), Element: "filesystem.EntryInfo.metadata", Adds: []string{"filesystem.EntryInfo.metadata"}, Probe: probeMetadata, Summary: "files carry metadata"},
	WatchEntry:          {Name: "watch-entry", Since: V(0, 6, 3), Element: "filesystem.WatchDirRequest.include_entry", Adds: []string{"filesystem.WatchDirRequest.include_entry", "filesystem.CreateWatcherRequest.include_entry", "filesystem.FilesystemEvent.entry"}, Probe: probeWatchEntry, Summary: "watch events describe the path"},
	WatchNetworkMounts:  {Name: "watch-network-mounts", Since: V(0, 6, 4), Element: "filesystem.WatchDirRequest.allow_network_mounts", Adds: []string{"filesystem.WatchDirRequest.allow_network_mounts", "filesystem.CreateWatcherRequest.allow_network_mounts"}, Summary: "network mounts can be watched"},
	CleanDeadline:       {Name: "clean-deadline", Since: V(0, 6, 10), Element: "process.Process/Start", Summary: "a deadline before the start event is answered"},
	ExitRetention:       {Name: "exit-retention", Since: V(0, 6, 12), Element: "process.Process/Connect", Probe: probeExitRetention, Summary: "Connect gives a command's end for 30 s"},
	InitVersionHeader:   {Name: "init-version-header", Since: V(0, 6, 12), Element: "POST /init", Summary: "init answers with the daemon's version"},

	UnsetInputDrop:      {Name: "unset-input-drop", Since: V(0, 1, 0), Until: V(0, 3, 0), Element: "process.Process/SendInput", Summary: "input without a kind drops the connection"},
	TagLookupBug:        {Name: "tag-lookup-bug", Since: V(0, 1, 0), Element: "process.ProcessSelector.tag", Summary: "a tag is not found while other tags are in use"},
	KeepaliveCrash:      {Name: "keepalive-crash", Since: V(0, 1, 0), Element: "process.Process/Start", Summary: "a keepalive interval of 0 crashes the daemon"},
	DataBeforeStartDrop: {Name: "data-before-start-drop", Since: V(0, 1, 0), Element: "process.Process/StreamInput", Summary: "data before start drops the connection"},
}

// Row returns what the table says of the feature.
func (f Feature) Row() Row {
	row := table[f]
	row.Feature = f
	return row
}

// String returns the feature's name.
func (f Feature) String() string { return table[f].Name }

// Features returns the whole table.
func Features() []Row {
	rows := make([]Row, 0, featureCount)
	for f := range featureCount {
		rows = append(rows, f.Row())
	}
	return rows
}
