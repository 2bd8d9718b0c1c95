// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdversion

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct {
		text string
		want Version // zero for an error
	}{
		{"0.6.13", V(0, 6, 13)},
		{"v0.5.2", V(0, 5, 2)},
		{" 0.3.7 ", V(0, 3, 7)},
		{"0.6", V(0, 6, 0)},
		{"0.6.4-sandlock", V(0, 6, 4)},
		{"1.2.3+build.5", V(1, 2, 3)},
		{"", Version{}},
		{"6", Version{}},
		{"0.0.0", Version{}},
		{"0.6.13.1", Version{}},
		{"0.-6.1", Version{}},
		{"0.six.1", Version{}},
		{"0.99999999999.1", Version{}},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			got, err := Parse(tt.text)
			if got != tt.want || (err != nil) != tt.want.IsZero() {
				t.Errorf("Parse(%q) = %v, %v, want %v", tt.text, got, err, tt.want)
			}
		})
	}
}

func TestHasAndLacks(t *testing.T) {
	tests := []struct {
		name        string
		version     Version
		feature     Feature
		has, lacked bool
	}{
		{"before it came", V(0, 5, 1), CloseStdin, false, true},
		{"when it came", V(0, 5, 2), CloseStdin, true, false},
		{"later", V(0, 6, 13), CloseStdin, true, false},
		{"unknown version", Version{}, CloseStdin, true, false},
		{"before it went", V(0, 2, 0), UnsetInputDrop, true, false},
		{"when it went", V(0, 3, 0), UnsetInputDrop, false, true},
		{"newer than we know", V(1, 0, 0), ExitRetention, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.version.Has(tt.feature); got != tt.has {
				t.Errorf("%v.Has(%v) = %v, want %v", tt.version, tt.feature, got, tt.has)
			}
			if got := tt.version.Lacks(tt.feature); got != tt.lacked {
				t.Errorf("%v.Lacks(%v) = %v, want %v", tt.version, tt.feature, got, tt.lacked)
			}
		})
	}
}

func TestTable(t *testing.T) {
	names := map[string]bool{}
	for _, row := range Features() {
		if row.Name == "" || row.Element == "" || row.Summary == "" || row.Since.IsZero() {
			t.Errorf("row %d is not complete: %+v", row.Feature, row)
		}
		if names[row.Name] {
			t.Errorf("two rows are called %s", row.Name)
		}
		names[row.Name] = true
		if !row.Until.IsZero() && row.Until.Compare(row.Since) <= 0 {
			t.Errorf("%s ends in %v, before it came in %v", row.Name, row.Until, row.Since)
		}
	}
	if !slices.IsSortedFunc(Supported(), Version.Compare) {
		t.Errorf("Supported() = %v, want oldest first", Supported())
	}
}
