// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"connectrpc.com/connect/v2"
)

// Do sends a plain HTTP request to envd, for what has no call of its own. Its
// URL is a path that begins with a slash, and a query; they are added to the
// base URL. The client's headers are set, with the token and the user, and no
// redirect is followed. Every answer is returned as it came, also one that says
// that the request failed; its body is to be closed. Nothing is retried and no
// time limit is set, but that of the request's context.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	return c.do(req, c.user)
}

func (c *Client) do(req *http.Request, user string) (*http.Response, error) {
	const op = "send"
	target := req.Method + " " + req.URL.Path
	if !strings.HasPrefix(req.URL.Path, "/") || req.URL.Scheme != "" || req.URL.Host != "" || req.URL.Opaque != "" || req.URL.User != nil {
		return nil, &Error{Op: op, Target: target, Code: CodeInvalidArgument, Err: errors.New("the URL must be a path that begins with a slash, and a query")}
	}
	out := req.Clone(req.Context())
	address, err := url.Parse(c.base.String() + req.URL.RequestURI())
	if err != nil {
		return nil, &Error{Op: op, Target: target, Code: CodeInvalidArgument, Err: err}
	}
	out.URL = address
	out.Host = ""
	t := &transport{core: c.core, user: user}
	if err := t.setHeaders(out); err != nil {
		err = connect.NewError(connect.CodeInvalidArgument, err.Error())
		return nil, toError(req.Context(), domainOther, op, target, err)
	}
	resp, err := t.send(out)
	if err != nil {
		err = connect.NewError(connect.CodeUnavailable, c.clean(plainCause(err).Error())).WithCause(err)
		return nil, toError(req.Context(), domainOther, op, target, err)
	}
	return resp, nil
}
