// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package protocoldiff

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Packages are those that make up the contract.
var Packages = []string{"process", "filesystem"}

// Buf runs buf in the repository at Root.
type Buf struct{ Root string }

func (b Buf) run(ctx context.Context, args ...string) (stdout []byte, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"tool", "-modfile=tools/go.mod", "buf"}, args...)...)
	cmd.Dir = b.Root
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("buf %s: %w: %s", args[0], err, strings.TrimSpace(errOut.String()))
	}
	return out.Bytes(), nil
}

// Build makes an image, at path, of a folder with .proto files, of an image, or
// of a git revision of the repository.
func (b Buf) Build(ctx context.Context, input, path string) error {
	args := []string{"build", input, "-o", path, "--exclude-source-info"}
	info, err := os.Stat(filepath.Join(b.Root, input))
	if filepath.IsAbs(input) {
		info, err = os.Stat(input)
	}
	switch {
	case err == nil && info.IsDir():
		folder := input
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(b.Root, folder)
		}
		paths, err := contractFiles(folder)
		if err != nil {
			return err
		}
		// Built from copies, so that neither the place of the files nor a
		// buf.yaml beside them, which may want modules from elsewhere, counts.
		copies, err := copyContract(paths)
		if err != nil {
			return err
		}
		defer os.RemoveAll(copies)
		args[1] = copies
	case err == nil, strings.Contains(input, "#"): // an image, or whatever buf reads
	default:
		args[1] = ".git#ref=" + input + ",subdir=proto"
	}
	_, err = b.run(ctx, args...)
	return err
}

var packageLine = regexp.MustCompile(`(?m)^\s*package\s+([\w.]+)\s*;`)

// contractFiles finds the .proto files of the contract's packages below a
// folder, wherever they lie.
func contractFiles(folder string) ([]string, error) {
	found := map[string][]string{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".proto" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if m := packageLine.FindSubmatch(data); m != nil && slices.Contains(Packages, string(m[1])) {
			found[string(m[1])] = append(found[string(m[1])], path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, pkg := range Packages {
		switch len(found[pkg]) {
		case 0:
			return nil, fmt.Errorf("%s has no .proto file of package %s", folder, pkg)
		case 1:
			paths = append(paths, found[pkg][0])
		default:
			return nil, fmt.Errorf("%s has several files of package %s: %s", folder, pkg, strings.Join(found[pkg], ", "))
		}
	}
	return paths, nil
}

// copyContract copies the files, each into a folder with the name of its
// package.
func copyContract(paths []string) (string, error) {
	dir, err := os.MkdirTemp("", "contract-")
	if err != nil {
		return "", err
	}
	for i, path := range paths {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, Packages[i]), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, Packages[i], Packages[i]+".proto"), data, 0o644)
		}
		if err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}

// ReadImage reads the contract from an image, binary or JSON.
func ReadImage(path string) (*Contract, error) {
	files, err := readFiles(path)
	if err != nil {
		return nil, err
	}
	return NewContract(files), nil
}

func readFiles(path string) ([]protoreflect.FileDescriptor, error) {
	set, err := readSet(path)
	if err != nil {
		return nil, err
	}
	registry, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", path, err)
	}
	var files []protoreflect.FileDescriptor
	registry.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if slices.Contains(Packages, string(file.Package())) {
			files = append(files, file)
		}
		return true
	})
	if len(files) == 0 {
		return nil, fmt.Errorf("image %s has nothing of the contract", path)
	}
	return files, nil
}

func readSet(path string) (*descriptorpb.FileDescriptorSet, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	set := &descriptorpb.FileDescriptorSet{}
	unmarshal := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal
	if filepath.Ext(path) == ".json" {
		unmarshal = (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal
	}
	if err := unmarshal(data, set); err != nil {
		return nil, fmt.Errorf("image %s: %w", path, err)
	}
	return set, nil
}

// finding is a line of "buf breaking".
type finding struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// breaking runs "buf breaking" on two images.
func (b Buf) breaking(ctx context.Context, from, to string) ([]finding, error) {
	out, err := b.run(ctx, "breaking", to, "--against", from, "--error-format", "json",
		"--config", `{"version":"v2","breaking":{"use":["WIRE_JSON"]}}`)
	var findings []finding
	for line := range bytes.Lines(out) {
		var f finding
		if jsonErr := json.Unmarshal(line, &f); jsonErr != nil {
			return nil, errors.Join(err, jsonErr)
		}
		findings = append(findings, f)
	}
	if len(findings) == 0 {
		return nil, err
	}
	return findings, nil
}

// Diff compares two inputs, with what buf thinks of it.
func (b Buf) Diff(ctx context.Context, from, to string) (*Report, error) {
	dir, err := os.MkdirTemp("", "protocol-diff-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	images := map[string]string{from: filepath.Join(dir, "from.binpb"), to: filepath.Join(dir, "to.binpb")}
	if from == to {
		return &Report{}, nil
	}
	contracts := map[string]*Contract{}
	for input, image := range images {
		if err := b.Build(ctx, input, image); err != nil {
			return nil, err
		}
		if contracts[input], err = ReadImage(image); err != nil {
			return nil, err
		}
	}
	report := Compare(contracts[from], contracts[to])
	findings, err := b.breaking(ctx, images[from], images[to])
	if err != nil {
		return nil, err
	}
	report.merge(findings)
	return report, nil
}

// merge adds what buf says. Where buf calls a change breaking it is; what buf
// sees and Compare does not is a change of its own.
func (r *Report) merge(findings []finding) {
	for _, f := range findings {
		matched := false
		for i := range r.Changes {
			if !r.Changes[i].isIn(f.Message) {
				continue
			}
			matched = true
			c := &r.Changes[i]
			c.Buf = append(c.Buf, f.Type+": "+f.Message)
			if c.Wire == Safe && c.JSON == Safe {
				c.Wire, c.JSON = Breaking, Breaking
			}
		}
		if !matched {
			r.Changes = append(r.Changes, Change{Kind: "changed", What: "contract", Name: f.Type, Detail: f.Message, Wire: Breaking, JSON: Breaking, Buf: []string{f.Type}})
		}
	}
}

// isIn reports whether a message of buf speaks of the element: it quotes the
// last part of its name, or its number, and what holds it.
func (c *Change) isIn(message string) bool {
	quoted := func(part string) bool { return strings.Contains(message, `"`+part+`"`) }
	parts := strings.FieldsFunc(c.Name, func(r rune) bool { return r == '.' || r == '/' })
	named := quoted(parts[len(parts)-1])
	if len(parts) < 2 {
		return named
	}
	holder := parts[len(parts)-2]
	numbered := c.number != 0 && quoted(strconv.Itoa(int(c.number)))
	return (named || numbered) && (quoted(holder) || strings.Contains(message, holder+`"`))
}
