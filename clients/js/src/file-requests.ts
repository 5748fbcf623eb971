// The requests about files and their results.
import type { FilePart } from "./generated.ts";

/** Begin the upload of a file. Idempotent. */
export interface UploadRequest {
  sha256: string;
  size: number;
  media_type?: string;
  name?: string;
  session_id?: string;
}

/** The HTTP request that stores the bytes. */
export interface UploadTarget {
  url: string;
  method: string;
  headers: Record<string, string>;
  /** Unix seconds. */
  expires_at: number;
}

/** `stored`: the service has the bytes already. Otherwise `upload` is the request to send. */
export interface UploadBegun {
  stored: boolean;
  upload: UploadTarget | null;
}

/** A file that messages may name. */
export interface UploadFinished {
  file: FilePart;
}

/** An address to download a file from. `expires_at`: Unix seconds. */
export interface FileAddress {
  url: string;
  expires_at: number;
}
