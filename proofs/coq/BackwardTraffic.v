(* The traffic of the backward pass of FlashAttention-1 (new ground beyond theorem (c)).

   Computed over the loop nest of Algorithm 4, ragged tiles included:

     reads   2 nk d + T_c nq (4d + 2)
     writes  nq d + 2 nk d (initialisation) + 2 nk d + T_c nq d

   and the tile rule as printed, B_c = ceil(M/4d), never fits: K_j, V_j, dK_j and dV_j
   alone take M words or more.  Hypotheses: 0 < d, 0 < M, and at least one whole key
   block, ceil(M/4d) <= nk, with 0 < nq.
   Source: Dao et al. 2022 (arXiv 2205.14135), Algorithm 4. *)
From Coq Require Import Arith Lia.
From iosim Require Import Tiles Traffic TrafficBounds.

(* The inner body has q query rows and k key rows. *)
Definition flash1_backward_inner (d q k : nat) : prog :=
  Load (q * d) ;; Load (q * d) ;; Load (q * d) ;; Load (q * d) ;;   (* line 10: Q_i, O_i, dO_i, dQ_i *)
  Load q ;; Load q ;;                                    (*          l_i, m_i *)
  New (q * k) ;; New (q * k) ;;                          (* lines 11-17: P_ij, dP_ij *)
  New q ;; Free q ;;                                     (* lines 19-20: D_i; dS_ij in place *)
  Free (q * k) ;; Free (q * k) ;;
  Store (q * d) ;;                                       (* line 21: dQ_i *)
  Free (q * d) ;; Free (q * d) ;; Free (q * d) ;; Free (q * d) ;; Free q ;; Free q.

Definition flash1_backward (nq nk d br bc : nat) : prog :=
  For (cdiv nq br) (fun i =>                             (* line 5: dQ *)
    New (rows nq br i * d) ;; Store (rows nq br i * d) ;; Free (rows nq br i * d)) ;;
  For (cdiv nk bc) (fun j =>                             (* line 5: dK, dV *)
    New (rows nk bc j * (2 * d)) ;; Store (rows nk bc j * (2 * d)) ;;
    Free (rows nk bc j * (2 * d))) ;;
  For (cdiv nk bc) (fun j =>                             (* line 6 *)
    Load (rows nk bc j * d) ;; Load (rows nk bc j * d) ;;  (* line 7: K_j, V_j *)
    New (rows nk bc j * d) ;; New (rows nk bc j * d) ;;    (* line 8: dK_j, dV_j *)
    For (cdiv nq br) (fun i =>                           (* line 9 *)
      flash1_backward_inner d (rows nq br i) (rows nk bc j)) ;;
    Store (rows nk bc j * d) ;; Store (rows nk bc j * d) ;;   (* line 23 *)
    Free (rows nk bc j * d) ;; Free (rows nk bc j * d) ;;
    Free (rows nk bc j * d) ;; Free (rows nk bc j * d)).

Theorem flash1_backward_reads nq nk d br bc : 0 < br -> 0 < bc ->
  loads (flash1_backward nq nk d br bc) = 2 * nk * d + cdiv nk bc * (nq * (4 * d + 2)).
Proof.
  intros Hr Hc. cbn [loads flash1_backward].
  rewrite (sum_tiles nq br _ 0), (sum_tiles nk bc (fun i => 0 + _) 0) by (trivial; intros; lia).
  rewrite (sum_ext _ _ (fun j => rows nk bc j * (2 * d) + nq * (4 * d + 2))).
  - rewrite sum_plus, sum_times_r, sum_rows, sum_const by assumption. lia.
  - intros j _. rewrite (sum_tiles nq br _ (4 * d + 2)) by (trivial; intros; cbn; lia). lia.
Qed.

Theorem flash1_backward_writes nq nk d br bc : 0 < br -> 0 < bc ->
  stores (flash1_backward nq nk d br bc)
  = nq * d + 2 * nk * d + 2 * nk * d + cdiv nk bc * (nq * d).
Proof.
  intros Hr Hc. cbn [stores flash1_backward].
  rewrite (sum_tiles nq br _ d) by (trivial; intros; lia).
  rewrite (sum_tiles nk bc (fun i => 0 + _) (2 * d)) by (trivial; intros; lia).
  rewrite (sum_ext _ _ (fun j => rows nk bc j * (2 * d) + nq * d)).
  - rewrite sum_plus, sum_times_r, sum_rows, sum_const by assumption. lia.
  - intros j _. rewrite (sum_tiles nq br _ d) by (trivial; intros; cbn; lia). lia.
Qed.

(* Without the initialisation this is 4 N d + T_c N (5d + 2) for nq = nk = N. *)
Corollary flash1_backward_traffic N d br bc : 0 < br -> 0 < bc ->
  traffic (flash1_backward N N d br bc) = 3 * N * d + (4 * N * d + cdiv N bc * (N * (5 * d + 2))).
Proof.
  intros Hr Hc. unfold traffic.
  rewrite flash1_backward_reads, flash1_backward_writes by assumption. lia.
Qed.

(* A loop that overflows in its first turn overflows. *)
Lemma iterate_overflow {A} n (f : nat -> A -> option A) a :
  0 < n -> f 0 a = None -> iterate n f a = None.
Proof.
  intros Hn Hf. induction n as [| n IH]; [ lia | ]. cbn.
  destruct n; [ exact Hf | ]. rewrite IH by lia. reflexivity.
Qed.

Theorem flash1_backward_never_fits nq nk d br M : 0 < d -> 0 < M -> 0 < nq -> 0 < br ->
  let bc := cdiv M (4 * d) in bc <= nk -> ~ fits M (flash1_backward nq nk d br bc).
Proof.
  intros Hd HM Hq Hr bc Hn. pose proof (printed_block d M Hd) as [B _]. fold bc in B.
  pose proof (printed_block_positive d M Hd HM) as Hc. fold bc in Hc. clearbody bc.
  assert (Tq : 0 < cdiv nq br) by (pose proof (cdiv_lower nq br Hr); destruct (cdiv nq br); lia).
  assert (Tk : 0 < cdiv nk bc) by (pose proof (cdiv_lower nk bc Hc); destruct (cdiv nk bc); lia).
  assert (R : rows nk bc 0 = bc) by (unfold rows; lia).
  assert (Q : 0 < rows nq br 0) by (unfold rows; lia).
  (* from any number of resident words the main loop overflows *)
  assert (K : forall r, resident M (For (cdiv nk bc) (fun j =>
      Load (rows nk bc j * d) ;; Load (rows nk bc j * d) ;;
      New (rows nk bc j * d) ;; New (rows nk bc j * d) ;;
      For (cdiv nq br) (fun i => flash1_backward_inner d (rows nq br i) (rows nk bc j)) ;;
      Store (rows nk bc j * d) ;; Store (rows nk bc j * d) ;;
      Free (rows nk bc j * d) ;; Free (rows nk bc j * d) ;;
      Free (rows nk bc j * d) ;; Free (rows nk bc j * d))) r = None).
  { intros r. cbn [resident]. apply iterate_overflow; [ exact Tk | ]. rewrite R.
    destruct (r + bc * d <=? M); [ | reflexivity ].
    destruct (r + bc * d + bc * d <=? M); [ | reflexivity ].
    destruct (r + bc * d + bc * d + bc * d <=? M); [ | reflexivity ].
    destruct (r + bc * d + bc * d + bc * d + bc * d <=? M); [ | reflexivity ].
    rewrite iterate_overflow; [ reflexivity | exact Tq | ].
    unfold flash1_backward_inner. cbn [resident].
    assert (0 < rows nq br 0 * d) by nia.
    destruct (Nat.leb_spec (r + bc * d + bc * d + bc * d + bc * d + rows nq br 0 * d) M);
      [ lia | reflexivity ]. }
  intros F. unfold fits, flash1_backward in F. cbn [resident] in F, K.
  destruct (iterate (cdiv nq br) _ 0) as [r1 |]; [ | discriminate F ].
  destruct (iterate (cdiv nk bc) _ r1) as [r2 |]; [ | discriminate F ].
  rewrite K in F. discriminate F.
Qed.
