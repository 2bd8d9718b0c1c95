// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
)

// entryFromJSON reads an entry as the codec does.
func entryFromJSON(t *testing.T, text string) *filesystempb.EntryInfo {
	t.Helper()
	info := &filesystempb.EntryInfo{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), info); err != nil {
		t.Fatal(err)
	}
	return info
}

func TestEntryMode(t *testing.T) {
	tests := []struct {
		name string
		json string
		want fs.FileMode
	}{
		{"file", `{"type":"FILE_TYPE_FILE","mode":420,"permissions":"-rw-r--r--"}`, 0o644},
		{"directory", `{"type":"FILE_TYPE_DIRECTORY","mode":493,"permissions":"drwxr-xr-x"}`, fs.ModeDir | 0o755},
		{"directory as a number", `{"type":2,"mode":493,"permissions":"drwxr-xr-x"}`, fs.ModeDir | 0o755},
		{"mode 000", `{"type":"FILE_TYPE_FILE","permissions":"----------"}`, 0},
		{"symlink to a file", `{"type":"FILE_TYPE_FILE","mode":420,"permissions":"Lrwxrwxrwx","symlinkTarget":"/a"}`, fs.ModeSymlink | 0o777},
		{"symlink to a directory", `{"type":"FILE_TYPE_DIRECTORY","mode":493,"permissions":"Lrwxrwxrwx","symlinkTarget":"/a"}`, fs.ModeSymlink | 0o777},
		{"broken symlink", `{"permissions":"Lrwxrwxrwx"}`, fs.ModeSymlink | 0o777},
		{"symlink type", `{"type":"FILE_TYPE_SYMLINK"}`, fs.ModeSymlink},
		{"symlink by its target alone", `{"type":"FILE_TYPE_FILE","mode":511,"symlinkTarget":"/a"}`, fs.ModeSymlink | 0o777},
		{"setuid and setgid", `{"type":"FILE_TYPE_FILE","mode":493,"permissions":"ugrwxr-xr-x"}`, fs.ModeSetuid | fs.ModeSetgid | 0o755},
		{"sticky directory", `{"type":"FILE_TYPE_DIRECTORY","mode":511,"permissions":"dtrwxrwxrwx"}`, fs.ModeDir | fs.ModeSticky | 0o777},
		{"fifo", `{"mode":420,"permissions":"prw-r--r--"}`, fs.ModeNamedPipe | 0o644},
		{"socket", `{"mode":493,"permissions":"Srwxr-xr-x"}`, fs.ModeSocket | 0o755},
		{"character device", `{"mode":438,"permissions":"Dcrw-rw-rw-"}`, fs.ModeDevice | fs.ModeCharDevice | 0o666},
		{"block device", `{"mode":432,"permissions":"Drw-rw----"}`, fs.ModeDevice | 0o660},
		{"ls: sticky directory", `{"permissions":"drwxrwxrwt"}`, fs.ModeDir | fs.ModeSticky | 0o777},
		{"ls: setuid without x", `{"permissions":"-rwSr--r--"}`, fs.ModeSetuid | 0o644},
		{"ls: symlink", `{"type":1,"permissions":"lrwxrwxrwx"}`, fs.ModeSymlink | 0o777},
		{"permissions without the type", `{"type":2,"permissions":"-rwxr-xr-x"}`, fs.ModeDir | 0o755},
		{"full mode number", `{"mode":17389}`, fs.ModeDir | fs.ModeSticky | 0o755},
		{"full mode number of a file", `{"mode":35309}`, fs.ModeSetuid | 0o755},
		{"nonsense permissions", `{"type":1,"mode":384,"permissions":"rw for me"}`, 0o600},
		{"old file", `{"type":"FILE_TYPE_FILE"}`, 0},
		{"old directory", `{"type":"FILE_TYPE_DIRECTORY"}`, fs.ModeDir},
		{"nothing known", `{}`, fs.ModeIrregular},
		{"type from the future", `{"type":77}`, fs.ModeIrregular},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEntry("x", "/x", entryFromJSON(t, tt.json))
			if e.Mode() != tt.want {
				t.Errorf("Mode() = %v, want %v", e.Mode(), tt.want)
			}
			if e.Type() != tt.want.Type() || e.IsDir() != tt.want.IsDir() {
				t.Errorf("Type() = %v, IsDir() = %v, want those of %v", e.Type(), e.IsDir(), tt.want)
			}
		})
	}
}

func TestEntryDetails(t *testing.T) {
	at := time.Date(2024, 1, 2, 3, 4, 5, 678901234, time.UTC)
	full := newEntry("f", "/w/f", &filesystempb.EntryInfo{Name: "f", Path: "/w/f", Size: 12, Permissions: "-rw-r--r--",
		Owner: "user", Group: "4242", ModifiedTime: timestamppb.New(at), Metadata: map[string]string{"k": "v"}})
	if !full.HasDetails() || full.Size() != 12 || !full.ModTime().Equal(at) || full.Owner() != "user" || full.Group() != "4242" {
		t.Errorf("entry = %v", full)
	}
	full.Metadata()["k"] = "changed"
	if got := full.Metadata()["k"]; got != "v" {
		t.Errorf("Metadata can be changed from outside: %q", got)
	}
	old := newEntry("f", "/w/f", &filesystempb.EntryInfo{Name: "f", Path: "/w/f"})
	if old.HasDetails() || !old.ModTime().IsZero() || old.Metadata() != nil || old.SymlinkTarget() != "" {
		t.Errorf("entry without details = %v", old)
	}
	epoch := newEntry("f", "/w/f", &filesystempb.EntryInfo{Permissions: "-rw-r--r--"})
	if got := epoch.ModTime(); got.Unix() != 0 {
		t.Errorf("ModTime of a left out time = %v, want the epoch", got)
	}
	loop := newEntry("l", "/w/l", &filesystempb.EntryInfo{Path: "/w/l", Permissions: "Lrwxrwxrwx", SymlinkTarget: new("/w/l")})
	if got := loop.SymlinkTarget(); got != "" {
		t.Errorf("SymlinkTarget of a broken link = %q, want none", got)
	}
}

func TestChildPath(t *testing.T) {
	tests := []struct {
		name             string
		dir, child, said string
		depth            uint32
		want             string // "" for an error
	}{
		{"plain", "/w", "a", "/w/a", 1, "/w/a"},
		{"not told", "/w", "a", "", 1, "/w/a"},
		{"root", "/", "a", "/a", 1, "/a"},
		{"unclean directory", "/w//d/../", "a", "/w/a", 1, "/w/a"},
		{"deep", "/w", "a", "/w/b/a", 3, "/w/b/a"},
		{"relative", "w", "a", "/home/user/w/a", 1, "/home/user/w/a"},
		{"deep but flat asked", "/w", "a", "/w/b/a", 1, ""},
		{"elsewhere", "/w", "passwd", "/etc/passwd", 1, ""},
		{"beside", "/w", "a", "/wx/a", 2, ""},
		{"dots", "/w", "a", "/w/../a", 2, ""},
		{"other name", "/w", "a", "/w/b", 2, ""},
		{"dot dot", "/w", "..", "/w/..", 1, ""},
		{"slash", "/w", "a/b", "/w/a/b", 2, ""},
		{"empty", "/w", "", "/w/", 1, ""},
		{"nul", "/w", "a\x00", "", 1, ""},
		{"deep and not told", "/w", "a", "", 2, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := childPath(tt.dir, tt.child, tt.said, tt.depth)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("childPath = %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func FuzzParsePermissions(f *testing.F) {
	for _, text := range []string{"-rw-r--r--", "Lrwxrwxrwx", "ugrwxr-xr-x", "dtrwxrwxrwx", "Dcrw-rw-rw-", "drwxrwxrwt", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		mode, err := parsePermissions(text)
		if err != nil {
			return
		}
		again, err := parsePermissions(mode.String())
		if err != nil || again != mode {
			t.Errorf("parsePermissions(%q) = %v, and of that %v, %v", text, mode, again, err)
		}
	})
}

func FuzzNames(f *testing.F) {
	f.Add("/w", "a", "/w/a")
	f.Add("/w", "..", "/w/..")
	f.Add("w", "a/../../b", "/home/b")
	f.Fuzz(func(t *testing.T, dir, name, said string) {
		if p, err := childPath(dir, name, said, 5); err == nil {
			if path.Base(p) != name || strings.Contains(name, "/") {
				t.Errorf("childPath(%q, %q, %q) = %q", dir, name, said, p)
			}
			if root := path.Clean(dir); path.IsAbs(dir) && root != "/" && !strings.HasPrefix(path.Clean(p), root+"/") {
				t.Errorf("childPath(%q, %q, %q) = %q, which is outside", dir, name, said, p)
			}
		}
		if clean, err := eventName(name); err == nil {
			if joined := path.Join("/w", clean); joined != "/w" && !strings.HasPrefix(joined, "/w/") {
				t.Errorf("eventName(%q) = %q, which is outside", name, clean)
			}
		}
	})
}
