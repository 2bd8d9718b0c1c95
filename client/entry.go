// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"
	"time"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
)

// Entry describes a file, directory or symlink of the sandbox, as it was when
// the daemon looked. It is an [fs.FileInfo] and an [fs.DirEntry] and does not
// change.
//
// Of a symlink it describes the link itself, as os.Lstat does; before envd
// 0.2.6 Stat describes what the link leads to, and ReadDir gives it as a plain
// file. [Client.FS] can follow links.
//
// Daemons before 0.2.5 tell only name, path and type: see [Entry.HasDetails].
type Entry struct {
	info *filesystempb.EntryInfo
	name string
	path string
	mode fs.FileMode
	size int64
}

var (
	_ fs.FileInfo = (*Entry)(nil)
	_ fs.DirEntry = (*Entry)(nil)
)

func newEntry(name, path string, info *filesystempb.EntryInfo) *Entry {
	return &Entry{info: info, name: name, path: path, mode: modeOf(info), size: info.GetSize()}
}

// Name returns the last element of the path.
func (e *Entry) Name() string { return e.name }

// Path returns the path in the sandbox. It is absolute wherever the daemon
// makes it so; the path that was asked for may stand in it as it was given.
func (e *Entry) Path() string { return e.path }

// Size returns the number of bytes: for a symlink those of its text, and 0
// where HasDetails is false.
func (e *Entry) Size() int64 { return e.size }

// Mode returns the type bits, and the permissions with setuid, setgid and the
// sticky bit. The permissions are 0 where HasDetails is false. A type that the
// daemon does not tell is [fs.ModeIrregular].
func (e *Entry) Mode() fs.FileMode { return e.mode }

// Type returns the type bits of Mode.
func (e *Entry) Type() fs.FileMode { return e.mode.Type() }

// IsDir reports whether this is a directory. A symlink to one is not.
func (e *Entry) IsDir() bool { return e.mode.IsDir() }

// ModTime returns when the content was last changed, or the zero Time where
// the daemon does not say.
func (e *Entry) ModTime() time.Time {
	if e.info.GetModifiedTime() == nil {
		if e.HasDetails() {
			return time.Unix(0, 0).UTC() // daemons leave out a time of zero
		}
		return time.Time{}
	}
	return e.info.GetModifiedTime().AsTime()
}

// Sys returns the generated message, a *filesystem.EntryInfo as the daemon sent
// it. It must not be changed.
func (e *Entry) Sys() any { return e.info }

// Info returns the entry itself. The error is always nil.
func (e *Entry) Info() (fs.FileInfo, error) { return e, nil }

// HasDetails reports whether the daemon told more than name, path and type.
// Before envd 0.2.5 none does.
func (e *Entry) HasDetails() bool {
	return e.info.GetPermissions() != "" || e.info.GetModifiedTime() != nil || e.info.GetOwner() != ""
}

// Owner returns the name of the owner, the number in digits where it has no
// name, or "" where the daemon does not say.
func (e *Entry) Owner() string { return e.info.GetOwner() }

// Group is as Owner, for the group.
func (e *Entry) Group() string { return e.info.GetGroup() }

// SymlinkTarget returns where a symlink leads in the end: an absolute path,
// with every link on the way resolved, and not the text of the link, which the
// protocol does not carry. It is "" for what is no symlink and for a link that
// leads nowhere or in circles.
func (e *Entry) SymlinkTarget() string {
	target := e.info.GetSymlinkTarget()
	if e.mode&fs.ModeSymlink == 0 || target == e.info.GetPath() || target == e.path {
		return ""
	}
	return target
}

// Metadata returns a copy of what was stored with the file by [WithMetadata],
// or nil. It needs envd 0.6.2.
func (e *Entry) Metadata() map[string]string {
	if len(e.info.GetMetadata()) == 0 {
		return nil
	}
	return maps.Clone(e.info.GetMetadata())
}

// String returns the entry as [fs.FormatFileInfo] does.
func (e *Entry) String() string { return escapeControls(fs.FormatFileInfo(e)) }

// leadsToDir reports whether the path is a directory once links are followed.
func (e *Entry) leadsToDir() bool {
	return e.IsDir() || e.info.GetType() == filesystempb.FileType_FILE_TYPE_DIRECTORY
}

// sized returns the entry with another size.
func (e *Entry) sized(size int64) *Entry {
	other := *e
	other.size = max(size, 0)
	return &other
}

// renamed returns the entry under another name.
func (e *Entry) renamed(name string) *Entry {
	other := *e
	other.name = name
	return &other
}

// The type and special bits of a Unix mode number.
const (
	unixTypeMask = 0o170000
	unixSetuid   = 0o4000
	unixSetgid   = 0o2000
	unixSticky   = 0o1000
)

var unixTypes = map[uint32]fs.FileMode{
	0o140000: fs.ModeSocket,
	0o120000: fs.ModeSymlink,
	0o100000: 0,
	0o060000: fs.ModeDevice,
	0o040000: fs.ModeDir,
	0o020000: fs.ModeDevice | fs.ModeCharDevice,
	0o010000: fs.ModeNamedPipe,
}

// modeOf puts the mode together. The permissions text is the only field that
// speaks of a symlink itself and has all bits; type and mode speak of its
// target.
func modeOf(info *filesystempb.EntryInfo) fs.FileMode {
	mode, err := parsePermissions(info.GetPermissions())
	if err == nil {
		if mode.IsRegular() {
			mode |= plainType(info)
		}
		return mode
	}
	number := info.GetMode()
	mode = fs.FileMode(number).Perm()
	if number&unixSetuid != 0 {
		mode |= fs.ModeSetuid
	}
	if number&unixSetgid != 0 {
		mode |= fs.ModeSetgid
	}
	if number&unixSticky != 0 {
		mode |= fs.ModeSticky
	}
	if bits, ok := unixTypes[number&unixTypeMask]; ok {
		return mode | bits
	}
	switch {
	case info.GetSymlinkTarget() != "":
		return mode | fs.ModeSymlink
	case info.GetType() == filesystempb.FileType_FILE_TYPE_FILE:
		return mode
	}
	if bits := plainType(info); bits != 0 {
		return mode | bits
	}
	return mode | fs.ModeIrregular
}

// plainType returns the bits of the type field.
func plainType(info *filesystempb.EntryInfo) fs.FileMode {
	switch info.GetType() {
	case filesystempb.FileType_FILE_TYPE_DIRECTORY:
		return fs.ModeDir
	case filesystempb.FileType_FILE_TYPE_SYMLINK:
		return fs.ModeSymlink
	}
	return 0
}

var errPermissions = errors.New("permissions are in no known form")

// permissionLetters are what may stand before the nine permissions: those of
// [fs.FileMode], which envd sends, and those of ls, which other daemons may.
var permissionLetters = map[byte]fs.FileMode{
	'd': fs.ModeDir,
	'L': fs.ModeSymlink,
	'l': fs.ModeSymlink, // fs.FileMode has it for "exclusive", which Unix has not
	'D': fs.ModeDevice,
	'b': fs.ModeDevice,
	'c': fs.ModeDevice | fs.ModeCharDevice,
	'p': fs.ModeNamedPipe,
	'S': fs.ModeSocket,
	's': fs.ModeSocket,
	'u': fs.ModeSetuid,
	'g': fs.ModeSetgid,
	't': fs.ModeSticky,
	'?': fs.ModeIrregular,
	'-': 0,
}

// parsePermissions reads the text of a mode, such as "-rw-r--r--",
// "dtrwxrwxrwx" or, as ls writes it, "drwxrwxrwt".
func parsePermissions(text string) (fs.FileMode, error) {
	if len(text) < 10 || len(text) > 16 {
		return 0, errPermissions
	}
	var mode fs.FileMode
	letters, perms := text[:len(text)-9], text[len(text)-9:]
	for i := range len(letters) {
		bits, ok := permissionLetters[letters[i]]
		if !ok || letters[i] == '-' && len(letters) > 1 {
			return 0, errPermissions
		}
		mode |= bits
	}
	special := [3]struct {
		set, clear byte
		bit        fs.FileMode
	}{{'s', 'S', fs.ModeSetuid}, {'s', 'S', fs.ModeSetgid}, {'t', 'T', fs.ModeSticky}}
	for i := range 9 {
		bit := fs.FileMode(1) << (8 - i)
		switch c := perms[i]; {
		case c == "rwx"[i%3]:
			mode |= bit
		case c == '-':
		case i%3 == 2 && c == special[i/3].set:
			mode |= bit | special[i/3].bit
		case i%3 == 2 && c == special[i/3].clear:
			mode |= special[i/3].bit
		default:
			return 0, errPermissions
		}
	}
	return mode, nil
}

// checkName refuses names that no file can have: they could lead elsewhere.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("server sent the name %q, which no file can have: %w", escapeControls(cut(name)), fs.ErrInvalid)
	}
	return nil
}

// childPath returns the path of an entry that was listed in dir, at some depth.
// What the server says of it is believed only where it fits.
func childPath(dir, name, said string, depth uint32) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	own := joinPath(path.Clean(dir), name)
	if said == "" && depth <= 1 || said == own {
		return own, nil
	}
	fits := path.IsAbs(said) && path.Clean(said) == said && path.Base(said) == name
	if fits && path.IsAbs(dir) {
		fits = strings.HasPrefix(said, strings.TrimSuffix(path.Clean(dir), "/")+"/")
		fits = fits && (depth > 1 || said == own)
	}
	if !fits {
		return "", fmt.Errorf("server sent the path %q for %q: %w", escapeControls(cut(said)), escapeControls(cut(name)), fs.ErrInvalid)
	}
	return said, nil
}
