// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/internal/envdversion"
)

const (
	fsStat    = "filesystem.Filesystem/Stat"
	fsList    = "filesystem.Filesystem/ListDir"
	fsMake    = "filesystem.Filesystem/MakeDir"
	fsMove    = "filesystem.Filesystem/Move"
	fsRemove  = "filesystem.Filesystem/Remove"
	fsWatch   = "filesystem.Filesystem/WatchDir"
	fsCreateW = "filesystem.Filesystem/CreateWatcher"
	fsEvents  = "filesystem.Filesystem/GetWatcherEvents"
	fsRemoveW = "filesystem.Filesystem/RemoveWatcher"
)

const (
	typeNone = filesystem.FileType_FILE_TYPE_UNSPECIFIED
	typeFile = filesystem.FileType_FILE_TYPE_FILE
	typeDir  = filesystem.FileType_FILE_TYPE_DIRECTORY
)

func (t *T) tryStat(path string) (*filesystem.EntryInfo, error) {
	res, err := t.fs.Stat(t.ctx, &filesystem.StatRequest{Path: path})
	return res.GetEntry(), err
}

func (t *T) stat(path string) *filesystem.EntryInfo {
	e, err := t.tryStat(path)
	t.ok(err, "Stat of %s", path)
	if e == nil {
		t.Fatalf("Stat of %s: want an entry, got none", path)
	}
	return e
}

func (t *T) list(path string, depth uint32) ([]*filesystem.EntryInfo, error) {
	res, err := t.fs.ListDir(t.ctx, &filesystem.ListDirRequest{Path: path, Depth: depth})
	return res.GetEntries(), err
}

// names lists a directory and returns the paths below it.
func (t *T) names(path string, depth uint32) []string {
	entries, err := t.list(path, depth)
	t.ok(err, "ListDir of %s", path)
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimPrefix(e.GetPath(), path+"/"))
	}
	return names
}

func (t *T) mkdir(path string) (*filesystem.EntryInfo, error) {
	res, err := t.fs.MakeDir(t.ctx, &filesystem.MakeDirRequest{Path: path})
	return res.GetEntry(), err
}

func (t *T) newDir(name string) string {
	defer t.prepare()()
	p := t.path(name)
	_, err := t.mkdir(p)
	t.ok(err, "MakeDir of %s", p)
	return p
}

func (t *T) move(from, to string) (*filesystem.EntryInfo, error) {
	res, err := t.fs.Move(t.ctx, &filesystem.MoveRequest{Source: from, Destination: to})
	return res.GetEntry(), err
}

func (t *T) remove(path string) error {
	_, err := t.fs.Remove(t.ctx, &filesystem.RemoveRequest{Path: path})
	return err
}

// gone checks that nothing is there. How that is said in detail is the matter of
// other cases: any answer of 404 will do.
func (t *T) gone(path string) {
	_, err := t.tryStat(path)
	if err != nil && strings.Contains(err.Error(), "404") {
		return
	}
	t.wantErr(err, connect.CodeNotFound)
}

var details = since(envdversion.EntryDetails)

var fsStatCases = []Case{
	{ID: "fs/stat/file", Procedure: fsStat, Protocols: core,
		Requirement: "A file has its name, path and type.",
		Run: func(t *T) {
			e := t.stat(t.file("a.txt", "hello"))
			t.equal("entry", []any{e.GetName(), e.GetPath(), e.GetType()}, []any{"a.txt", t.path("a.txt"), typeFile})
		}},
	{ID: "fs/stat/directory", Procedure: fsStat, Protocols: core,
		Requirement: "A directory has its name, path and type.",
		Run: func(t *T) {
			e := t.stat(t.newDir("d"))
			t.equal("entry", []any{e.GetName(), e.GetPath(), e.GetType()}, []any{"d", t.path("d"), typeDir})
		}},
	{ID: "fs/stat/details", Procedure: fsStat, Since: details, Needs: shell,
		Requirement: "A file has its size, mode and permissions.",
		Run: func(t *T) {
			p := t.file("a.txt", "hello")
			t.sh("chmod 640 %s", p)
			e := t.stat(p)
			t.equal("size, mode, permissions", []any{e.GetSize(), e.GetMode(), e.GetPermissions()}, []any{5, 0o640, "-rw-r-----"})
		}},
	{ID: "fs/stat/directory-details", Procedure: fsStat, Since: details, Needs: shell,
		Requirement: "A directory has its mode and permissions.",
		Run: func(t *T) {
			p := t.newDir("d")
			t.sh("chmod 750 %s", p)
			e := t.stat(p)
			t.equal("mode, permissions", []any{e.GetMode(), e.GetPermissions()}, []any{0o750, "drwxr-x---"})
		}},
	{ID: "fs/stat/modified-time", Procedure: fsStat, Since: details, Needs: shell,
		Requirement: "The modification time has nanoseconds and may be before 1970.",
		Run: func(t *T) {
			p := t.file("a", "x")
			t.sh("touch -d '2024-01-02T03:04:05.678901234Z' %s", p)
			t.equal("modified time", t.stat(p).GetModifiedTime().AsTime().UTC().Format("2006-01-02T15:04:05.999999999Z"), "2024-01-02T03:04:05.678901234Z")
			t.sh("touch -d '1969-12-31T23:59:59Z' %s", p)
			t.equal("modified time", t.stat(p).GetModifiedTime().GetSeconds(), -1)
		}},
	{ID: "fs/stat/owner", Procedure: fsStat, Since: details, Needs: []Need{NeedShell, NeedRoot},
		Requirement: "Owner and group are names.",
		Run: func(t *T) {
			e := t.stat(t.file("a", "x"))
			t.equal("owner and group", e.GetOwner()+" "+e.GetGroup()+"\n", t.output(script(`echo "$(id -un) $(id -gn)"`)))
			t.equal("owner and group of /etc/passwd", t.stat("/etc/passwd").GetOwner()+" "+t.stat("/etc/passwd").GetGroup(), "root root")
		}},
	{ID: "fs/stat/missing", Procedure: fsStat, Protocols: core,
		Requirement: "A path that does not exist is refused with not_found.",
		Run: func(t *T) {
			for _, name := range []string{"missing", "no/such/parent"} {
				_, err := t.tryStat(t.path(name))
				t.wantErr(err, connect.CodeNotFound)
			}
		}},
	{ID: "fs/stat/missing-body", Procedure: fsStat, Protocols: justJSON, Level: Should,
		Requirement: "The error of a missing path is HTTP 404 with a Connect error in JSON.",
		Run: func(t *T) {
			t.wantCode(t.unary(fsStat, mustJSON(map[string]string{"path": t.path("missing")})), 404, "not_found")
		}},
	{ID: "fs/stat/below-file", Procedure: fsStat,
		Requirement: "A path below a file is refused with internal.",
		Run: func(t *T) {
			_, err := t.tryStat(t.file("f", "x") + "/below")
			t.wantErr(err, connect.CodeInternal)
		}},
	{ID: "fs/stat/unnormalised", Procedure: fsStat, Level: May,
		Requirement: "The path of the entry is the path of the request.",
		Run: func(t *T) {
			t.newDir("d")
			t.file("f", "x")
			for _, p := range []string{t.path("d/"), t.path("d/../f"), t.path("./f")} {
				t.equal("path", t.stat(p).GetPath(), p)
			}
		}},
	{ID: "fs/stat/relative", Procedure: fsStat, Needs: shell,
		Requirement: "~ is the user's home, and relative paths count from there.",
		Run: func(t *T) {
			home := strings.TrimSpace(t.sh("echo $HOME"))
			t.equal("path of ~", t.stat("~").GetPath(), home)
			t.equal("type of .", t.stat(".").GetType(), typeDir)
			t.equal("path of ./.", t.stat("./.").GetPath(), home)
		}},
	{ID: "fs/stat/other-home", Procedure: fsStat,
		Requirement: "~name is refused with invalid_argument.",
		Run: func(t *T) {
			_, err := t.tryStat("~root/x")
			t.wantErr(err, connect.CodeInvalidArgument)
		}},
	{ID: "fs/stat/nul", Procedure: fsStat,
		Requirement: "A path with a NUL byte is refused with internal.",
		Run: func(t *T) {
			_, err := t.tryStat(t.path("a\x00b"))
			t.wantErr(err, connect.CodeInternal)
		}},
	{ID: "fs/stat/too-long", Procedure: fsStat,
		Requirement: "A name of more than 255 bytes is refused with internal.",
		Run: func(t *T) {
			_, err := t.tryStat(t.path(strings.Repeat("n", 256)))
			t.wantErr(err, connect.CodeInternal)
		}},
	{ID: "fs/stat/names", Procedure: fsStat,
		Requirement: "Names may have unicode, spaces, quotes and newlines.",
		Run: func(t *T) {
			for _, name := range []string{"žluťoučký 🐎", "with space", `quo"te'`, "new\nline", strings.Repeat("n", 255)} {
				t.equal("name", t.stat(t.file(name, "x")).GetName(), name)
			}
		}},
	{ID: "fs/stat/unknown-user", Procedure: fsStat,
		Requirement: "A user that does not exist is refused with unauthenticated.",
		Run: func(t *T) {
			_, err := t.as("nobody-" + t.run.id).tryStat("/")
			t.wantErr(err, connect.CodeUnauthenticated)
		}},
	{ID: "fs/stat/no-user", Procedure: fsStat, Since: since(envdversion.DefaultUser),
		Requirement: "Without a user the default user is taken.",
		Run:         func(t *T) { t.equal("type", t.anonymous().stat("/").GetType(), typeDir) }},
	{ID: "fs/stat/no-user-refused", Procedure: fsStat, Until: since(envdversion.DefaultUser),
		Requirement: "Without a user the call is refused with unauthenticated.",
		Run: func(t *T) {
			_, err := t.anonymous().tryStat("/")
			t.wantErr(err, connect.CodeUnauthenticated)
		}},
	{ID: "fs/stat/symlink", Procedure: fsStat, Since: since(envdversion.LstatEntries), Needs: shell,
		Requirement: "A symlink has its target's type, its own size and the resolved path of the target.",
		Run: func(t *T) {
			t.file("target", "hello")
			t.sh("cd %s; ln -s target link", t.dir())
			e := t.stat(t.path("link"))
			t.equal("type, size, target", []any{e.GetType(), e.GetSize(), e.GetSymlinkTarget()}, []any{typeFile, 6, t.path("target")})
			if e := t.stat(t.path("target")); e.SymlinkTarget != nil {
				t.Fatalf("want no symlink target for a file, got %q", e.GetSymlinkTarget())
			}
		}},
	{ID: "fs/stat/broken-symlink", Procedure: fsStat, Since: since(envdversion.LstatEntries), Needs: shell,
		Requirement: "A broken symlink is there and has no type.",
		Run: func(t *T) {
			t.dir()
			t.sh("cd %s; ln -s nowhere link; ln -s loop loop", t.dir())
			t.equal("types", []any{t.stat(t.path("link")).GetType(), t.stat(t.path("loop")).GetType()}, []any{typeNone, typeNone})
		}},
	{ID: "fs/stat/special", Procedure: fsStat, Since: since(envdversion.LstatEntries), Needs: shell,
		Requirement: "A FIFO and a device have no type.",
		Run: func(t *T) {
			t.sh("mkfifo %s", t.path("fifo"))
			t.equal("types", []any{t.stat(t.path("fifo")).GetType(), t.stat("/dev/null").GetType()}, []any{typeNone, typeNone})
		}},
	{ID: "fs/stat/json", Procedure: fsStat, Protocols: justJSON, Since: details,
		Requirement: "In JSON the size is a string, the mode a number, the type a name, the time RFC 3339 in UTC.",
		Run: func(t *T) {
			e := dig(t.object(t.wantStatus(t.unary(fsStat, mustJSON(map[string]string{"path": t.file("a", "hello")})), 200).body), "entry")
			t.equal("size", fmt.Sprintf("%#v", dig(e, "size")), `"5"`)
			t.equal("mode", fmt.Sprintf("%T", dig(e, "mode")), "float64")
			t.equal("type", dig(e, "type"), "FILE_TYPE_FILE")
			if s, _ := dig(e, "modifiedTime").(string); !strings.HasSuffix(s, "Z") {
				t.Fatalf("want modifiedTime in UTC, got %v", e)
			}
		}},
	{ID: "fs/stat/json-zero", Procedure: fsStat, Protocols: justJSON, Since: details,
		Requirement: "In JSON the size of an empty file is left out.",
		Run: func(t *T) {
			e := dig(t.object(t.unary(fsStat, mustJSON(map[string]string{"path": t.file("a", "")})).body), "entry")
			if v := dig(e, "size"); v != nil {
				t.Fatalf("want no size, got %v", e)
			}
		}},
}

var fsListCases = []Case{
	{ID: "fs/list/one-level", Procedure: fsList, Protocols: core,
		Requirement: "A directory is listed one level deep, in the order of names.",
		Run: func(t *T) {
			t.file("b", "x")
			t.file("a", "x")
			t.file("c/inside", "x")
			t.equal("names", t.names(t.dir(), 0), []string{"a", "b", "c"})
			t.equal("names with depth 1", t.names(t.dir(), 1), []string{"a", "b", "c"})
		}},
	{ID: "fs/list/entries", Procedure: fsList, Since: details,
		Requirement: "Listed entries are as complete as those of Stat.",
		Run: func(t *T) {
			p := t.file("a", "hello")
			entries, err := t.list(t.dir(), 1)
			t.ok(err, "ListDir")
			t.equal("number", len(entries), 1)
			e, s := entries[0], t.stat(p)
			t.equal("entry", []any{e.GetName(), e.GetPath(), e.GetType(), e.GetSize(), e.GetMode(), e.GetPermissions(), e.GetOwner(), e.GetModifiedTime().AsTime()},
				[]any{s.GetName(), s.GetPath(), s.GetType(), s.GetSize(), s.GetMode(), s.GetPermissions(), s.GetOwner(), s.GetModifiedTime().AsTime()})
		}},
	{ID: "fs/list/depth", Procedure: fsList,
		Requirement: "depth gives the number of levels; parents come before their children.",
		Run: func(t *T) {
			t.file("d/e/f/g", "x")
			t.file("z", "x")
			t.equal("depth 2", t.names(t.dir(), 2), []string{"d", "d/e", "z"})
			t.equal("depth 9", t.names(t.dir(), 9), []string{"d", "d/e", "d/e/f", "d/e/f/g", "z"})
		}},
	{ID: "fs/list/empty", Procedure: fsList, Protocols: core,
		Requirement: "An empty directory has no entries.",
		Run:         func(t *T) { t.equal("names", len(t.names(t.dir(), 1)), 0) }},
	{ID: "fs/list/missing", Procedure: fsList, Protocols: core,
		Requirement: "A directory that does not exist is refused with not_found.",
		Run: func(t *T) {
			_, err := t.list(t.path("missing"), 1)
			t.wantErr(err, connect.CodeNotFound)
		}},
	{ID: "fs/list/file", Procedure: fsList,
		Requirement: "A file is refused with invalid_argument.",
		Run: func(t *T) {
			_, err := t.list(t.file("a", "x"), 1)
			t.wantErr(err, connect.CodeInvalidArgument)
		}},
	{ID: "fs/list/symlinked", Procedure: fsList, Since: envdversion.V(0, 2, 3), Needs: shell,
		Requirement: "A symlink to a directory is listed below its own path; links inside are not followed.",
		Run: func(t *T) {
			t.file("real/sub/f", "x")
			t.sh("cd %s; ln -s real link; ln -s sub real/inner", t.dir())
			t.equal("names", t.names(t.path("link"), 3), []string{"inner", "sub", "sub/f"})
		}},
	{ID: "fs/list/loop", Procedure: fsList, Since: envdversion.V(0, 2, 3), Needs: shell,
		Requirement: "A symlink loop is refused with failed_precondition.",
		Run: func(t *T) {
			t.sh("ln -s loop %s", t.path("loop"))
			_, err := t.list(t.path("loop"), 1)
			t.wantErr(err, connect.CodeFailedPrecondition)
		}},
	{ID: "fs/list/many", Procedure: fsList, Needs: shell,
		Requirement: "Two thousand entries are listed.",
		Run: func(t *T) {
			t.sh("cd %s; i=0; while [ $i -lt 2000 ]; do : > f$i; i=$((i+1)); done", t.dir())
			t.equal("number", len(t.names(t.dir(), 1)), 2000)
		}},
	{ID: "fs/list/negative-depth", Procedure: fsList, Protocols: justJSON,
		Requirement: "A negative depth is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantCode(t.unary(fsList, `{"path":"/","depth":-1}`), 400, "invalid_argument")
		}},
	{ID: "fs/list/json-empty", Procedure: fsList, Protocols: justJSON,
		Requirement: "In JSON an empty listing has no entries, or an empty array of them.",
		Run: func(t *T) {
			r := t.wantStatus(t.unary(fsList, mustJSON(map[string]string{"path": t.dir()})), 200)
			if v, ok := t.object(r.body)["entries"]; ok && fmt.Sprint(v) != "[]" {
				t.Fatalf("want no entries, got %s", r)
			}
		}},
	{ID: "fs/list/json-types", Procedure: fsList, Protocols: justJSON, Level: Should,
		Requirement: "In JSON types are names, not numbers.",
		Run: func(t *T) {
			t.file("a", "hello")
			r := t.wantStatus(t.unary(fsList, mustJSON(map[string]string{"path": t.dir()})), 200)
			entries, _ := t.object(r.body)["entries"].([]any)
			if len(entries) != 1 || dig(entries[0], "type") != "FILE_TYPE_FILE" {
				t.Fatalf("want one entry of type FILE_TYPE_FILE, got %s", r)
			}
		}},
	{ID: "fs/list/bad-name", Procedure: fsList, Level: May, Needs: shell,
		Requirement: "A name that is not UTF-8 makes the listing fail with internal.",
		Run: func(t *T) {
			t.sh(`cd %s; : > "$(printf 'bad\377')"`, t.dir())
			_, err := t.list(t.dir(), 1)
			t.cleanup(func(ctx context.Context) { _ = t.until(ctx).remove(t.dir()) })
			t.wantErr(err, connect.CodeInternal)
		}},
}

var fsChangeCases = []Case{
	{ID: "fs/mkdir/new", Procedure: fsMake, Protocols: core,
		Requirement: "A new directory is made, with its parents, and described.",
		Run: func(t *T) {
			e, err := t.mkdir(t.path("x/y/z"))
			t.ok(err, "MakeDir")
			t.equal("entry", []any{e.GetName(), e.GetPath(), e.GetType()}, []any{"z", t.path("x/y/z"), typeDir})
			t.equal("type", t.stat(t.path("x/y")).GetType(), typeDir)
		}},
	{ID: "fs/mkdir/details", Procedure: fsMake, Since: since(envdversion.MakeDirDetails),
		Requirement: "The answer of MakeDir is as complete as that of Stat; the mode is 755.",
		Run: func(t *T) {
			e, err := t.mkdir(t.path("d"))
			t.ok(err, "MakeDir")
			t.equal("mode, permissions", []any{e.GetMode(), e.GetPermissions()}, []any{0o755, "drwxr-xr-x"})
			if e.GetOwner() == "" || e.GetModifiedTime() == nil {
				t.Fatalf("want owner and modification time, got %v", e)
			}
		}},
	{ID: "fs/mkdir/owner", Procedure: fsMake, Needs: []Need{NeedShell, NeedRoot},
		Requirement: "New directories belong to the user, the parents too.",
		Run: func(t *T) {
			t.newDir("x/y")
			t.equal("owners", t.sh("stat -c %%U %s %s", t.path("x"), t.path("x/y")), strings.Repeat(t.run.target.User+"\n", 2))
		}},
	{ID: "fs/mkdir/exists", Procedure: fsMake, Protocols: core,
		Requirement: "An existing directory is refused with already_exists.",
		Run: func(t *T) {
			_, err := t.mkdir(t.dir())
			t.wantErr(err, connect.CodeAlreadyExists)
		}},
	{ID: "fs/mkdir/over-file", Procedure: fsMake,
		Requirement: "An existing file is refused with invalid_argument.",
		Run: func(t *T) {
			_, err := t.mkdir(t.file("f", "x"))
			t.wantErr(err, connect.CodeInvalidArgument)
		}},
	{ID: "fs/mkdir/below-file", Procedure: fsMake,
		Requirement: "A directory below a file is refused with internal.",
		Run: func(t *T) {
			_, err := t.mkdir(t.file("f", "x") + "/d")
			t.wantErr(err, connect.CodeInternal)
		}},

	{ID: "fs/move/file", Procedure: fsMove, Protocols: core,
		Requirement: "A file is moved, and described at its new place.",
		Run: func(t *T) {
			a, b := t.file("a", "content"), t.path("b")
			e, err := t.move(a, b)
			t.ok(err, "Move")
			t.equal("entry", []any{e.GetName(), e.GetPath(), e.GetType()}, []any{"b", b, typeFile})
			t.equal("content", t.read(b), "content")
			t.gone(a)
		}},
	{ID: "fs/move/directory", Procedure: fsMove,
		Requirement: "A directory is moved with what is in it.",
		Run: func(t *T) {
			t.file("d/sub/f", "content")
			_, err := t.move(t.path("d"), t.path("e"))
			t.ok(err, "Move")
			t.equal("content", t.read(t.path("e/sub/f")), "content")
		}},
	{ID: "fs/move/parents", Procedure: fsMove,
		Requirement: "Missing parents of the destination are made.",
		Run: func(t *T) {
			_, err := t.move(t.file("a", "content"), t.path("x/y/b"))
			t.ok(err, "Move")
			t.equal("content", t.read(t.path("x/y/b")), "content")
		}},
	{ID: "fs/move/overwrite", Procedure: fsMove,
		Requirement: "An existing destination file is replaced.",
		Run: func(t *T) {
			_, err := t.move(t.file("a", "new"), t.file("b", "old"))
			t.ok(err, "Move")
			t.equal("content", t.read(t.path("b")), "new")
		}},
	{ID: "fs/move/onto-directory", Procedure: fsMove,
		Requirement: "A destination that is a directory is refused with internal, and nothing is moved.",
		Run: func(t *T) {
			a := t.file("a", "x")
			_, err := t.move(a, t.newDir("d"))
			t.wantErr(err, connect.CodeInternal)
			t.equal("content", t.read(a), "x")
		}},
	{ID: "fs/move/into-itself", Procedure: fsMove,
		Requirement: "A directory cannot be moved into itself: internal.",
		Run: func(t *T) {
			d := t.newDir("d")
			_, err := t.move(d, d+"/inside")
			t.wantErr(err, connect.CodeInternal)
		}},
	{ID: "fs/move/missing", Procedure: fsMove, Protocols: core,
		Requirement: "A source that does not exist is refused with not_found.",
		Run: func(t *T) {
			_, err := t.move(t.path("missing"), t.path("b"))
			t.wantErr(err, connect.CodeNotFound)
		}},
	{ID: "fs/move/symlink", Procedure: fsMove, Needs: shell, Since: since(envdversion.LstatEntries),
		Requirement: "A symlink is moved itself, not its target.",
		Run: func(t *T) {
			p := t.file("target", "x")
			t.sh("ln -s %s %s", p, t.path("link"))
			_, err := t.move(t.path("link"), t.path("moved"))
			t.ok(err, "Move")
			t.equal("link and target", t.sh("readlink %s; cat %s", t.path("moved"), p), p+"\nx")
		}},

	{ID: "fs/remove/file", Procedure: fsRemove, Protocols: core,
		Requirement: "A file is removed.",
		Run: func(t *T) {
			p := t.file("a", "x")
			t.ok(t.remove(p), "Remove")
			t.gone(p)
		}},
	{ID: "fs/remove/tree", Procedure: fsRemove,
		Requirement: "A directory is removed with what is in it.",
		Run: func(t *T) {
			t.file("d/e/f", "x")
			t.ok(t.remove(t.path("d")), "Remove")
			t.gone(t.path("d"))
		}},
	{ID: "fs/remove/missing", Procedure: fsRemove, Protocols: core,
		Requirement: "Removing what does not exist succeeds.",
		Run: func(t *T) {
			t.ok(t.remove(t.path("missing")), "Remove")
			t.ok(t.remove(t.path("no/such/parent")), "Remove")
		}},
	{ID: "fs/remove/symlink", Procedure: fsRemove, Needs: shell,
		Requirement: "A symlink is removed itself; its target stays.",
		Run: func(t *T) {
			p := t.file("d/f", "kept")
			t.sh("ln -s %s %s", t.path("d"), t.path("link"))
			t.ok(t.remove(t.path("link")), "Remove")
			t.equal("content", t.read(p), "kept")
		}},
	{ID: "fs/remove/below-file", Procedure: fsRemove,
		Requirement: "A path below a file is refused with internal.",
		Run:         func(t *T) { t.wantErr(t.remove(t.file("f", "x")+"/below"), connect.CodeInternal) }},
	{ID: "fs/remove/parallel", Procedure: fsRemove,
		Requirement: "Parallel removals of one tree all succeed.",
		Run: func(t *T) {
			for i := range 10 {
				t.file(fmt.Sprintf("d/%d/f", i), "x")
			}
			t.parallel(2, func(i int) error { return t.remove(fmt.Sprintf("%s/d/%d", t.dir(), i)) })
			t.ok(t.remove(t.path("d")), "Remove")
			t.gone(t.path("d"))
		}},
	{ID: "fs/mkdir/parallel", Procedure: fsMake, Since: since(envdversion.ParentRaceFixed),
		Requirement: "Parallel MakeDir in one new tree succeed.",
		Run: func(t *T) {
			base := t.path("new/tree")
			t.parallel(12, func(i int) error {
				_, err := t.mkdir(fmt.Sprintf("%s/%d", base, i))
				return err
			})
			t.equal("number", len(t.names(base, 1)), 12)
		}},
}

// watch is an open WatchDir.
type watch struct {
	t       *T
	receive func() (*filesystem.WatchDirResponse, error)
	events  []*filesystem.FilesystemEvent
}

func (t *T) tryWatch(req *filesystem.WatchDirRequest) (*watch, error) {
	ctx, cancel := context.WithCancel(t.ctx)
	t.cleanup(func(context.Context) { cancel() })
	stream, err := t.fs.WatchDir(ctx, req)
	if err != nil {
		return nil, err
	}
	first, err := stream.Receive()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the stream ended cleanly without any event")
	}
	if err != nil {
		return nil, err
	}
	if first.GetStart() == nil {
		t.Fatalf("the first event of WatchDir must be start, got %v", first)
	}
	return &watch{t: t, receive: stream.Receive}, nil
}

func (t *T) watch(path string, recursive bool) *watch {
	w, err := t.tryWatch(&filesystem.WatchDirRequest{Path: path, Recursive: recursive})
	t.ok(err, "WatchDir of %s", path)
	return w
}

// until reads events until one has that name and type, and returns it.
func (w *watch) until(name string, kind filesystem.EventType) *filesystem.FilesystemEvent {
	for {
		msg, err := w.receive()
		if err != nil {
			w.t.Fatalf("waiting for %s of %q: the stream ended (%v) after %s", kind, name, err, texts(w.events))
		}
		e := msg.GetFilesystem()
		if e == nil {
			continue
		}
		w.events = append(w.events, e)
		if e.GetName() == name && e.GetType() == kind {
			return e
		}
	}
}

func texts(events []*filesystem.FilesystemEvent) string {
	var all []string
	for _, e := range events {
		all = append(all, strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_")+" "+e.GetName())
	}
	return strings.Join(all, ", ")
}

const (
	evCreate = filesystem.EventType_EVENT_TYPE_CREATE
	evWrite  = filesystem.EventType_EVENT_TYPE_WRITE
	evRemove = filesystem.EventType_EVENT_TYPE_REMOVE
	evRename = filesystem.EventType_EVENT_TYPE_RENAME
	evChmod  = filesystem.EventType_EVENT_TYPE_CHMOD
)

// poller is a watcher that is polled.
type poller struct {
	t      *T
	id     string
	events []*filesystem.FilesystemEvent
}

func (t *T) poller(req *filesystem.CreateWatcherRequest) *poller {
	res, err := t.fs.CreateWatcher(t.ctx, req)
	t.ok(err, "CreateWatcher")
	t.run.addWatcher(res.GetWatcherId())
	t.cleanup(func(ctx context.Context) {
		_, _ = t.fs.RemoveWatcher(ctx, &filesystem.RemoveWatcherRequest{WatcherId: res.GetWatcherId()})
	})
	if res.GetWatcherId() == "" {
		t.Fatalf("want an id of the watcher, got none")
	}
	return &poller{t: t, id: res.GetWatcherId()}
}

func (p *poller) poll() []*filesystem.FilesystemEvent {
	res, err := p.t.fs.GetWatcherEvents(p.t.ctx, &filesystem.GetWatcherEventsRequest{WatcherId: p.id})
	p.t.ok(err, "GetWatcherEvents")
	p.events = append(p.events, res.GetEvents()...)
	return res.GetEvents()
}

// until polls until an event of that name and type was there.
func (p *poller) until(name string, kind filesystem.EventType) *filesystem.FilesystemEvent {
	var found *filesystem.FilesystemEvent
	p.t.poll(fmt.Sprintf("%s of %q comes", kind, name), func() bool {
		i := slices.IndexFunc(p.poll(), func(e *filesystem.FilesystemEvent) bool { return e.GetName() == name && e.GetType() == kind })
		if i >= 0 {
			found = p.events[len(p.events)-1]
			for _, e := range p.events {
				if e.GetName() == name && e.GetType() == kind {
					found = e
				}
			}
		}
		return found != nil
	})
	return found
}

var fsWatchCases = []Case{
	{ID: "fs/watch/create-write", Procedure: fsWatch, Protocols: core,
		Requirement: "A new file is CREATE, and its content WRITE, with a name relative to the directory.",
		Run: func(t *T) {
			w := t.watch(t.dir(), false)
			t.file("a", "x")
			w.until("a", evCreate)
			w.until("a", evWrite)
		}},
	{ID: "fs/watch/remove", Procedure: fsWatch,
		Requirement: "A file that goes is REMOVE.",
		Run: func(t *T) {
			p := t.file("a", "x")
			w := t.watch(t.dir(), false)
			t.ok(t.remove(p), "Remove")
			w.until("a", evRemove)
		}},
	{ID: "fs/watch/rename", Procedure: fsWatch,
		Requirement: "A rename is RENAME with the old name and CREATE with the new one.",
		Run: func(t *T) {
			a := t.file("a", "x")
			w := t.watch(t.dir(), false)
			_, err := t.move(a, t.path("b"))
			t.ok(err, "Move")
			w.until("a", evRename)
			w.until("b", evCreate)
		}},
	{ID: "fs/watch/chmod", Procedure: fsWatch, Needs: shell,
		Requirement: "A change of mode is CHMOD.",
		Run: func(t *T) {
			p := t.file("a", "x")
			w := t.watch(t.dir(), false)
			t.sh("chmod 600 %s", p)
			w.until("a", evChmod)
		}},
	{ID: "fs/watch/directory", Procedure: fsWatch,
		Requirement: "A new directory is CREATE, one that goes REMOVE.",
		Run: func(t *T) {
			w := t.watch(t.dir(), false)
			t.newDir("d")
			w.until("d", evCreate)
			t.ok(t.remove(t.path("d")), "Remove")
			w.until("d", evRemove)
		}},
	{ID: "fs/watch/not-recursive", Procedure: fsWatch,
		Requirement: "Without recursive, what happens in a subdirectory is not reported.",
		Run: func(t *T) {
			t.newDir("d")
			w := t.watch(t.dir(), false)
			t.file("d/inside", "x")
			t.file("last", "x")
			w.until("last", evCreate)
			for _, e := range w.events {
				if strings.Contains(e.GetName(), "inside") {
					t.Fatalf("want no event from the subdirectory, got %s", texts(w.events))
				}
			}
		}},
	{ID: "fs/watch/recursive", Procedure: fsWatch,
		Requirement: "With recursive, what happens in a subdirectory is reported with its relative path.",
		Run: func(t *T) {
			t.newDir("d/e")
			w := t.watch(t.dir(), true)
			t.file("d/e/f", "x")
			w.until("d/e/f", evCreate)
		}},
	{ID: "fs/watch/recursive-new", Procedure: fsWatch,
		Requirement: "With recursive, directories that are made later are watched too.",
		Run: func(t *T) {
			w := t.watch(t.dir(), true)
			t.newDir("p/q/r")
			w.until("p/q/r", evCreate)
			t.file("p/q/r/f", "x")
			w.until("p/q/r/f", evCreate)
		}},
	{ID: "fs/watch/entry", Procedure: fsWatch, Since: since(envdversion.WatchEntry),
		Requirement: "With include_entry, CREATE describes the path and REMOVE does not.",
		Run: func(t *T) {
			w, err := t.tryWatch(&filesystem.WatchDirRequest{Path: t.dir(), IncludeEntry: true})
			t.ok(err, "WatchDir")
			p := t.newDir("d")
			t.equal("path of the entry", w.until("d", evCreate).GetEntry().GetPath(), p)
			t.ok(t.remove(p), "Remove")
			if e := w.until("d", evRemove).GetEntry(); e != nil {
				t.Fatalf("want no entry with REMOVE, got %v", e)
			}
		}},
	{ID: "fs/watch/no-entry", Procedure: fsWatch,
		Requirement: "Without include_entry, events have no entry.",
		Run: func(t *T) {
			w := t.watch(t.dir(), false)
			t.newDir("d")
			if e := w.until("d", evCreate).GetEntry(); e != nil {
				t.Fatalf("want no entry, got %v", e)
			}
		}},
	{ID: "fs/watch/missing", Procedure: fsWatch, Protocols: core,
		Requirement: "A directory that does not exist is refused with not_found.",
		Run: func(t *T) {
			_, err := t.tryWatch(&filesystem.WatchDirRequest{Path: t.path("missing")})
			t.wantErr(err, connect.CodeNotFound)
		}},
	{ID: "fs/watch/file", Procedure: fsWatch,
		Requirement: "A file is refused with invalid_argument.",
		Run: func(t *T) {
			_, err := t.tryWatch(&filesystem.WatchDirRequest{Path: t.file("f", "x")})
			t.wantErr(err, connect.CodeInvalidArgument)
		}},
	{ID: "fs/watch/keepalive", Procedure: fsWatch,
		Requirement: "WatchDir sends keepalive events at the interval that the request gives.",
		Run: func(t *T) {
			w := t.with(keepalive, "1").watch(t.dir(), false)
			for {
				msg, err := w.receive()
				t.ok(err, "waiting for a keepalive event")
				if msg.GetKeepalive() != nil {
					return
				}
			}
		}},
	{ID: "fs/watch/timeout", Procedure: fsWatch,
		Requirement: "Connect-Timeout-Ms ends WatchDir with deadline_exceeded.",
		Run: func(t *T) {
			_, err := t.with(timeoutMs, "500").watch(t.dir(), false).receive()
			t.wantErr(err, connect.CodeDeadlineExceeded)
		}},
	{ID: "fs/watch/two", Procedure: fsWatch,
		Requirement: "Two watches of one directory both get its events.",
		Run: func(t *T) {
			a, b := t.watch(t.dir(), false), t.watch(t.dir(), true)
			t.newDir("d")
			a.until("d", evCreate)
			b.until("d", evCreate)
		}},
	{ID: "fs/watch/unary-type", Procedure: fsWatch, Protocols: justHTTP,
		Requirement: "The unary content type is answered with 415.",
		Run:         func(t *T) { t.wantStatus(t.unary(fsWatch, `{"path":"/tmp"}`), 415) }},

	{ID: "fs/poll/events", Procedure: fsEvents, Protocols: core,
		Requirement: "A polling watcher reports what happened since the last poll, once.",
		Run: func(t *T) {
			p := t.poller(&filesystem.CreateWatcherRequest{Path: t.dir()})
			t.newDir("d")
			p.until("d", evCreate)
			t.ok(t.remove(t.path("d")), "Remove")
			p.until("d", evRemove)
			t.equal("number of times that d was created", strings.Count(texts(p.events), "CREATE d"), 1)
		}},
	{ID: "fs/poll/quiet", Procedure: fsEvents,
		Requirement: "A poll without events is an empty answer at once.",
		Run: func(t *T) {
			t.equal("events", len(t.poller(&filesystem.CreateWatcherRequest{Path: t.dir()}).poll()), 0)
		}},
	{ID: "fs/poll/recursive", Procedure: fsCreateW,
		Requirement: "A recursive polling watcher reports subdirectories.",
		Run: func(t *T) {
			t.newDir("d")
			p := t.poller(&filesystem.CreateWatcherRequest{Path: t.dir(), Recursive: true})
			t.file("d/f", "x")
			p.until("d/f", evCreate)
		}},
	{ID: "fs/poll/entry", Procedure: fsCreateW, Since: since(envdversion.WatchEntry),
		Requirement: "With include_entry, CREATE describes the path.",
		Run: func(t *T) {
			p := t.poller(&filesystem.CreateWatcherRequest{Path: t.dir(), IncludeEntry: true})
			t.equal("path of the entry", p.until(lastName(t.newDir("d")), evCreate).GetEntry().GetPath(), t.path("d"))
		}},
	{ID: "fs/poll/separate", Procedure: fsEvents,
		Requirement: "Two polling watchers do not take events from each other.",
		Run: func(t *T) {
			a := t.poller(&filesystem.CreateWatcherRequest{Path: t.dir()})
			b := t.poller(&filesystem.CreateWatcherRequest{Path: t.dir()})
			if a.id == b.id {
				t.Fatalf("want two ids, got %q twice", a.id)
			}
			t.newDir("d")
			a.until("d", evCreate)
			b.until("d", evCreate)
		}},
	{ID: "fs/poll/missing", Procedure: fsCreateW,
		Requirement: "CreateWatcher of a directory that does not exist is refused with not_found, of a file with invalid_argument.",
		Run: func(t *T) {
			_, err := t.fs.CreateWatcher(t.ctx, &filesystem.CreateWatcherRequest{Path: t.path("missing")})
			t.wantErr(err, connect.CodeNotFound)
			_, err = t.fs.CreateWatcher(t.ctx, &filesystem.CreateWatcherRequest{Path: t.file("f", "x")})
			t.wantErr(err, connect.CodeInvalidArgument)
		}},
	{ID: "fs/poll/unknown-id", Procedure: fsEvents, Protocols: core,
		Requirement: "An id that is not known is refused with not_found.",
		Run: func(t *T) {
			_, err := t.fs.GetWatcherEvents(t.ctx, &filesystem.GetWatcherEventsRequest{WatcherId: "no-such-" + t.run.id})
			t.wantErr(err, connect.CodeNotFound)
			_, err = t.fs.RemoveWatcher(t.ctx, &filesystem.RemoveWatcherRequest{WatcherId: "no-such-" + t.run.id})
			t.wantErr(err, connect.CodeNotFound)
		}},
	{ID: "fs/poll/removed", Procedure: fsRemoveW,
		Requirement: "After RemoveWatcher the id is not known any more.",
		Run: func(t *T) {
			p := t.poller(&filesystem.CreateWatcherRequest{Path: t.dir()})
			_, err := t.fs.RemoveWatcher(t.ctx, &filesystem.RemoveWatcherRequest{WatcherId: p.id})
			t.ok(err, "RemoveWatcher")
			_, err = t.fs.GetWatcherEvents(t.ctx, &filesystem.GetWatcherEventsRequest{WatcherId: p.id})
			t.wantErr(err, connect.CodeNotFound)
		}},
	{ID: "fs/poll/snake-case", Procedure: fsEvents, Protocols: justJSON, Level: Should,
		Requirement: "In JSON a field may be named in snake case.",
		Run: func(t *T) {
			p := t.poller(&filesystem.CreateWatcherRequest{Path: t.dir()})
			t.wantStatus(t.unary(fsEvents, mustJSON(map[string]string{"watcher_id": p.id})), 200)
		}},
}

func lastName(path string) string { return path[strings.LastIndex(path, "/")+1:] }

var concurrencyCases = []Case{
	{ID: "concurrency/mixed/calls", Procedure: "*", Needs: shell,
		Requirement: "Processes, uploads, listings and health checks at the same time do not disturb each other.",
		Run: func(t *T) {
			t.dir()
			t.parallel(24, func(i int) error {
				switch i % 4 {
				case 0:
					if got := t.output(script(fmt.Sprintf("echo %d", i))); got != fmt.Sprintf("%d\n", i) {
						return fmt.Errorf("process %d printed %q", i, got)
					}
				case 1:
					if r := t.post(t.path(fmt.Sprint(i)), "x"); r.status != 200 {
						return fmt.Errorf("upload %d: %s", i, r)
					}
				case 2:
					_, err := t.list(t.dir(), 1)
					return err
				case 3:
					if r := t.do("GET", "/health", nil); r.status != 204 {
						return fmt.Errorf("health check %d: %s", i, r)
					}
				}
				return nil
			})
		}},
	{ID: "concurrency/mixed/unary", Procedure: procList,
		Requirement: "A hundred unary calls at once are all answered.",
		Run: func(t *T) {
			t.parallel(100, func(int) error {
				_, err := t.tryAttach(pid(noPID))
				if connect.CodeOf(err) != connect.CodeNotFound {
					return fmt.Errorf("want not_found, got %w", err)
				}
				return nil
			})
		}},
}
