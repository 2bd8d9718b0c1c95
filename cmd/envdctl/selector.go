// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
)

// parseSelector reads PID or TAG as people write it: a number is a pid, and
// anything else a tag. "tag:" in front makes a tag of a number.
func parseSelector(text string) (client.Selector, error) {
	if tag, ok := strings.CutPrefix(text, "tag:"); ok {
		if tag == "" {
			return client.Selector{}, errors.New("the tag is empty")
		}
		return client.Tag(tag), nil
	}
	pid, err := strconv.ParseUint(text, 10, 32)
	switch {
	case text == "":
		return client.Selector{}, errors.New("want a pid or a tag")
	case err == nil && pid == 0:
		return client.Selector{}, errors.New("no command has pid 0")
	case err == nil:
		return client.PID(uint32(pid)), nil
	case errors.Is(err, strconv.ErrRange):
		return client.Selector{}, fmt.Errorf("%s is too large for a pid", text)
	}
	return client.Tag(text), nil
}

// completionTimeout bounds what a press of the tab key may take.
const completionTimeout = 3 * time.Second

// completeSelector offers the pids and tags of the running commands.
func (a *app) completeSelector(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if a.usesEmbedded(cmd) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := a.connect(cmd, client.WithRequestTimeout(completionTimeout), client.WithoutRetries())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer c.close()
	processes, err := c.Processes(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var offers []string
	for _, p := range processes {
		description := printable(quoteCommand(append([]string{p.Path}, p.Args...)))
		for _, name := range []string{strconv.FormatUint(uint64(p.PID), 10), p.Tag} {
			if name != "" && strings.HasPrefix(name, prefix) && printable(name) == name {
				offers = append(offers, name+"\t"+description)
			}
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}
